-- Forgets what is of no use any more, a part at a time, unless somebody has just done so. The
-- fence of an idle lock goes with its row, so the store's floor is raised above it first, and
-- committed one sweep before the row is deleted: whoever does not see the row sees the floor.
-- Each statement commits itself, so that nobody waits for more than one of them.
CREATE PROCEDURE lockfast_sweep(IN idle_us BIGINT, IN at_most INT)
  SQL SECURITY DEFINER
sweep: BEGIN
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE old_floor, new_floor BIGINT;
  DECLARE first_name, last_name VARBINARY(255);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  UPDATE lockfast_store SET swept_us = now_us
   WHERE id = 1 AND NOT (swept_us > now_us - idle_us AND swept_us <= now_us);
  IF ROW_COUNT() = 0 THEN
    LEAVE sweep;
  END IF;
  SELECT floor, swept_name INTO old_floor, first_name FROM lockfast_store WHERE id = 1;
  DELETE FROM lockfast_mail WHERE sent_us < now_us - idle_us;
  DELETE FROM lockfast_clients WHERE seen_us < now_us - 86400000000
     AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(client))) IS NULL
   LIMIT 1000;
  SELECT MAX(name) INTO last_name
    FROM (SELECT name FROM lockfast_locks WHERE name > first_name ORDER BY name LIMIT at_most) a;
  IF last_name IS NOT NULL THEN
    DELETE FROM lockfast_locks
     WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us
       AND fence <= old_floor;
    SELECT MAX(fence) INTO new_floor FROM lockfast_locks
     WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us;
  END IF;
  UPDATE lockfast_store
     SET floor = GREATEST(floor, COALESCE(new_floor, 0)),
         -- The same part again if something of it is to be deleted next time.
         swept_name = IF(new_floor IS NOT NULL, first_name, COALESCE(last_name, ''))
   WHERE id = 1;
END
