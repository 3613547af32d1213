-- Tells one that waits for how long what is in its way lasts from now, so that it looks by itself
-- then. Whoever looks lets the right one in, so any will do that does not belong to the client that
-- has just got the lock and may hang: the next one in the order of clients, whose first claim an
-- index has. It is not woken for that unless it must know within a second.
CREATE PROCEDURE lockfast_lead(
  IN lock_name VARBINARY(255), IN except_client BINARY(6), IN is_urgent TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE leader BINARY(16);
  DECLARE is_there TINYINT DEFAULT 0;
  DECLARE is_second_half TINYINT DEFAULT 0;
  DECLARE tries_left INT DEFAULT 4;
  DECLARE after_client BINARY(6) DEFAULT except_client;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  looking: WHILE NOT is_there AND tries_left > 0 AND @lockfast_waiting > @lockfast_asleep DO
    SET leader = NULL, tries_left = tries_left - 1;
    SELECT c.holder INTO leader
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_client)
     WHERE c.name = lock_name AND c.stage = 0 AND c.client > after_client
     ORDER BY c.client, c.ticket LIMIT 1;
    IF leader IS NOT NULL THEN
      SET after_client = LEFT(leader, 6);
    ELSEIF is_second_half THEN
      LEAVE looking;
    ELSE
      -- From the first client on again.
      SET is_second_half = 1, after_client = '';
      ITERATE looking;
    END IF;
    IF is_second_half AND after_client >= except_client THEN
      SET leader = NULL;
      LEAVE looking;
    END IF;
    CALL lockfast_find(after_client, is_there);
  END WHILE;
  IF is_there THEN
    CALL lockfast_measure(lock_name);
    CALL lockfast_push(after_client,
      CONCAT_WS('\t', 'H', HEX(leader), @lockfast_now, @lockfast_blocked), is_urgent);
  END IF;
END
