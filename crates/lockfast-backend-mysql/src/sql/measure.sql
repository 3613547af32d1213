-- For how long what is in the way of a claim lasts if nobody does anything, in @lockfast_blocked. Of
-- several who share a lock it is the one that ends first, also for a claim that needs all of them gone:
-- those who last longer may be released before, and nobody would be told that the rest ends soon.
CREATE PROCEDURE lockfast_measure(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  IF @lockfast_client IS NOT NULL THEN
    SET @lockfast_blocked = @lockfast_until - @lockfast_now;
  ELSE
    SELECT COALESCE(MIN(c.until_us) - @lockfast_now, 0)
      INTO @lockfast_blocked
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 1;
  END IF;
END
