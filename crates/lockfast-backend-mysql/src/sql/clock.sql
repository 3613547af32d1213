-- The server's clock, whatever the session's time zone is (where clocks are set back in autumn an
-- hour comes twice) and whatever a session says the time is (SYSDATE does not care).
CREATE PROCEDURE lockfast_clock(OUT now_us BIGINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE zone VARCHAR(64) DEFAULT @@SESSION.time_zone;
  IF zone = '+00:00' THEN
    SET now_us = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  ELSE
    SET SESSION time_zone = '+00:00';
    SET now_us = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    SET SESSION time_zone = zone;
  END IF;
END
