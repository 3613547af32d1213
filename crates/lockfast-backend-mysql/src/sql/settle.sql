-- The rule of the queue: grants every claim that waits, in order, as long as what is ahead of it
-- agrees with its mode. Whoever has the lock alone stands in lockfast_locks, so all rows of
-- lockfast_claims that have it share it.
--
-- A claim that waited gets the lock for 1.5 s at most until it is renewed; the one whose
-- own call this is (@lockfast_self) has the whole ttl. Clients that are gone are skipped.
CREATE PROCEDURE lockfast_settle(IN lock_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  DECLARE id BINARY(16);
  DECLARE its_mode INT;
  DECLARE its_ttl, its_delay, its_floor, ahead, lasts, next_fence BIGINT;
  DECLARE granted_to BINARY(6);
  DECLARE has_moved TINYINT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  line: WHILE @lockfast_holder IS NULL AND @lockfast_crowd > 0 DO
    SET id = NULL;
    SELECT holder, mode, ttl_us, delay_us, floor
      INTO id, its_mode, its_ttl, its_delay, its_floor
      FROM lockfast_claims WHERE name = lock_name AND stage = 0 ORDER BY ticket LIMIT 1;
    IF id IS NULL THEN
      LEAVE line;
    END IF;
    SELECT COUNT(*) INTO ahead FROM lockfast_claims WHERE name = lock_name AND stage = 1;
    IF (its_mode = 0 AND ahead > 0) OR (its_mode > 0 AND ahead >= its_mode) THEN
      LEAVE line;
    END IF;
    IF LEFT(id, 6) <> @lockfast_who
       AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(LEFT(id, 6)))) IS NULL THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1;
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, id, NULL, 0);
      END IF;
      ITERATE line;
    END IF;
    SET next_fence =
      GREATEST(@lockfast_fence + 1, @lockfast_floor + 1, its_floor + 1, @lockfast_now);
    IF next_fence >= 9007199254740992 THEN
      LEAVE line;
    END IF;
    SET @lockfast_fence = next_fence;
    SET lasts = IF(id <=> @lockfast_self, its_ttl, LEAST(its_ttl, 1500000));
    IF its_mode = 0 THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1, @lockfast_holder = id,
          @lockfast_since = @lockfast_now, @lockfast_until = @lockfast_now + lasts + its_delay;
    ELSE
      UPDATE lockfast_claims
         SET stage = 1, fence = next_fence, since_us = @lockfast_now,
             until_us = @lockfast_now + lasts + its_delay
       WHERE name = lock_name AND holder = id;
    END IF;
    IF NOT id <=> @lockfast_self THEN
      SET granted_to = LEFT(id, 6), has_moved = 1;
      CALL lockfast_push(granted_to, CONCAT_WS('\t',
        'G', HEX(id), next_fence, @lockfast_now, lasts, lock_name), 1);
    END IF;
    IF @lockfast_watched THEN
      CALL lockfast_tell('g', lock_name, id, next_fence, lasts + its_delay);
    END IF;
  END WHILE;
  IF has_moved THEN
    -- The next in line finds that in its mail before a grant of the usual length ends.
    CALL lockfast_lead(lock_name, granted_to, lasts < 1500000);
  END IF;
END
