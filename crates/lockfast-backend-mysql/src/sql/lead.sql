-- Tells the first that waits and does not belong to the client that has just got the lock (which
-- may hang) for how long what is in its way lasts from now, so that it looks by itself then. It is
-- not woken for that unless it must know within a second.
CREATE PROCEDURE lockfast_lead(
  IN lock_name VARBINARY(255), IN except_client BINARY(6), IN is_urgent TINYINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE leader BINARY(16);
  DECLARE its_mode INT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SELECT holder, mode INTO leader, its_mode
    FROM lockfast_claims
   WHERE name = lock_name AND stage = 0 AND NOT LEFT(holder, 6) <=> except_client
   ORDER BY ticket LIMIT 1;
  IF leader IS NOT NULL THEN
    CALL lockfast_measure(lock_name, its_mode);
    CALL lockfast_push(LEFT(leader, 6),
      CONCAT_WS('\t', 'H', HEX(leader), @lockfast_now, @lockfast_blocked), is_urgent);
  END IF;
END
