-- For how long what is in the way of a claim lasts if nobody does anything, in @lockfast_blocked.
CREATE PROCEDURE lockfast_measure(IN lock_name VARBINARY(255), IN its_mode INT)
  SQL SECURITY DEFINER
BEGIN
  IF @lockfast_holder IS NOT NULL THEN
    SET @lockfast_blocked = @lockfast_until - @lockfast_now;
  ELSE
    SELECT COALESCE(IF(its_mode = 0, MAX(until_us), MIN(until_us)) - @lockfast_now, 0)
      INTO @lockfast_blocked
      FROM lockfast_claims WHERE name = lock_name AND stage = 1;
  END IF;
END
