-- A client that was given a lock and did not take it in time hangs: all its claims that wait for
-- this lock are passed over, in their places, until it is heard again. Once it has been silent for
-- a minute they end.
CREATE PROCEDURE lockfast_pass_over(IN lock_name VARBINARY(255), IN hung BINARY(6))
  SQL SECURITY INVOKER
BEGIN
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  IF @lockfast_waiting > @lockfast_asleep THEN
    UPDATE lockfast_claims FORCE INDEX (lockfast_claims_client)
       SET stage = 3, until_us = now_us + 60000000
     WHERE name = lock_name AND stage = 0 AND client = hung AND until_us > now_us;
    SET @lockfast_asleep = @lockfast_asleep + ROW_COUNT();
  END IF;
END
