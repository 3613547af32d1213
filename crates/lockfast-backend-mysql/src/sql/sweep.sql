-- Forgets what has been of no use for a minute, a part at a time, unless somebody has just done so.
-- The fence of an idle lock goes with its row, so the store's floor is raised above it first, and
-- committed one sweep before the row is deleted: whoever does not see the row sees the floor.
-- Each statement commits itself, so that nobody waits for more than one of them.
CREATE PROCEDURE lockfast_sweep()
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  sweep: BEGIN
    DECLARE now_us, old_floor, new_floor BIGINT;
    DECLARE idle_us BIGINT DEFAULT 60000000;
    DECLARE gone, parts INT DEFAULT 0;
    DECLARE first_name, last_name VARBINARY(255);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    UPDATE lockfast_store s SET s.swept_us = now_us
     WHERE s.id = 1 AND NOT (s.swept_us > now_us - idle_us AND s.swept_us <= now_us);
    IF ROW_COUNT() = 0 THEN
      COMMIT AND NO CHAIN NO RELEASE;
      LEAVE sweep;
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT s.floor, s.swept_name INTO old_floor, first_name FROM lockfast_store s WHERE s.id = 1;
    DELETE FROM lockfast_mail WHERE sent_us < now_us - idle_us;
    COMMIT AND NO CHAIN NO RELEASE;
    DELETE FROM lockfast_clients WHERE seen_us < now_us - 86400000000
       AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(who))) IS NULL
     LIMIT 1000;
    COMMIT AND NO CHAIN NO RELEASE;
    ended: LOOP
      DELETE FROM lockfast_values WHERE until_us <= now_us LIMIT 1000;
      SET gone = ROW_COUNT(), parts = parts + 1;
      COMMIT AND NO CHAIN NO RELEASE;
      IF gone < 1000 OR parts >= 10 THEN
        LEAVE ended;
      END IF;
    END LOOP;
    SELECT MAX(name) INTO last_name
      FROM (SELECT name FROM lockfast_locks WHERE name > first_name ORDER BY name LIMIT 10000) a;
    IF last_name IS NOT NULL THEN
      DELETE FROM lockfast_locks
       WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us
         AND fence <= old_floor;
      COMMIT AND NO CHAIN NO RELEASE;
      SELECT MAX(fence) INTO new_floor FROM lockfast_locks
       WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us;
    END IF;
    UPDATE lockfast_store s
       SET s.floor = GREATEST(s.floor, COALESCE(new_floor, 0)),
           -- The same part again if something of it is to be deleted next time.
           s.swept_name = IF(new_floor IS NOT NULL, first_name, COALESCE(last_name, ''))
     WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
