-- For how long what is in the way of a claim lasts if nobody does anything, in @lockfast_blocked.
CREATE PROCEDURE lockfast_measure(IN lock_name VARBINARY(255), IN its_mode INT)
  SQL SECURITY INVOKER
BEGIN
  IF @lockfast_client IS NOT NULL THEN
    SET @lockfast_blocked = @lockfast_until - @lockfast_now;
  ELSE
    SELECT COALESCE(IF(its_mode = 0, MAX(c.until_us), MIN(c.until_us)) - @lockfast_now, 0)
      INTO @lockfast_blocked
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 1;
  END IF;
END
