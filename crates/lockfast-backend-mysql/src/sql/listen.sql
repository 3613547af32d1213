-- Returns the client's mail, at once or when it is woken, or nothing after a while. What was read
-- is deleted by the next call, which names it: an answer that was lost is given again.
--
-- It waits for a named lock that the client's other connection has: unlike SLEEP, of which all
-- share one mutex in the server, that can be interrupted by many at once.
CREATE PROCEDURE lockfast_listen(IN who CHAR(12), IN was_read BIGINT, IN seconds INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE reading BIGINT;
  CALL lockfast_own(CONCAT('lockfast:l:', who));
  IF was_read > 0 THEN
    DELETE FROM lockfast_mail WHERE client = UNHEX(who) AND reading_us = was_read;
  END IF;
  IF seconds > 0 AND NOT EXISTS (SELECT 1 FROM lockfast_mail WHERE client = UNHEX(who)) THEN
    -- A server that ends the whole call when it is woken is asked again.
    IF GET_LOCK(CONCAT('lockfast:w:', who), seconds) THEN
      DO RELEASE_LOCK(CONCAT('lockfast:w:', who));
    END IF;
  END IF;
  SET reading = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  UPDATE lockfast_mail SET reading_us = reading WHERE client = UNHEX(who);
  SELECT body, reading FROM lockfast_mail
   WHERE client = UNHEX(who) AND reading_us = reading ORDER BY seq;
END
