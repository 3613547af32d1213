-- The rule of the queue: grants every claim that waits, in order, as long as what is ahead of it
-- agrees with its mode. Whoever has the lock alone stands in lockfast_locks, so all rows of
-- lockfast_claims that have it share it. Tells who has it alone from now on, if that is another.
--
-- A claim that waited gets the lock for 1.5 s at most until it is renewed; one that is new or ends
-- its wait with this very call (@lockfast_self) has the whole ttl. Clients that are gone are skipped.
CREATE PROCEDURE lockfast_settle(IN lock_name VARBINARY(255), INOUT heir BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE id BINARY(16);
  DECLARE its_mode INT;
  DECLARE its_ticket, its_ttl, its_delay, its_floor, lasts, next_fence BIGINT;
  DECLARE served_last BIGINT DEFAULT @lockfast_served;
  DECLARE its_client, granted_to BINARY(6);
  DECLARE is_there, has_moved TINYINT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  line: WHILE @lockfast_client IS NULL AND @lockfast_waiting > @lockfast_asleep DO
    SET id = NULL;
    SELECT c.holder, c.ticket, c.mode, c.ttl_us, c.delay_us, c.floor
      INTO id, its_ticket, its_mode, its_ttl, its_delay, its_floor
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 0 AND c.ticket > served_last
     ORDER BY c.ticket LIMIT 1;
    IF id IS NULL OR (its_mode = 0 AND @lockfast_sharing > 0)
       OR (its_mode > 0 AND @lockfast_sharing >= its_mode) THEN
      LEAVE line;
    END IF;
    SET its_client = LEFT(id, 6);
    CALL lockfast_find(its_client, is_there);
    IF NOT is_there THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1, @lockfast_waiting = @lockfast_waiting - 1;
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, its_client, NULL, 0);
      END IF;
      ITERATE line;
    END IF;
    SET next_fence =
      GREATEST(@lockfast_fence + 1, @lockfast_floor + 1, its_floor + 1, @lockfast_now);
    IF next_fence >= 9007199254740992 THEN
      LEAVE line;
    END IF;
    SET @lockfast_fence = next_fence, @lockfast_waiting = @lockfast_waiting - 1,
        @lockfast_served = its_ticket, served_last = its_ticket,
        lasts = IF(id <=> @lockfast_self, its_ttl, LEAST(its_ttl, 1500000));
    IF its_mode = 0 THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET heir = id, @lockfast_crowd = @lockfast_crowd - 1, @lockfast_client = its_client,
          @lockfast_is_asker = id <=> @lockfast_self, @lockfast_offered = NOT id <=> @lockfast_self,
          @lockfast_since = @lockfast_now, @lockfast_until = @lockfast_now + lasts + its_delay;
    ELSE
      UPDATE lockfast_claims c
         SET c.stage = 1, c.fence = next_fence, c.since_us = @lockfast_now,
             c.until_us = @lockfast_now + lasts + its_delay, c.offered = NOT id <=> @lockfast_self
       WHERE c.name = lock_name AND c.holder = id;
      SET @lockfast_sharing = @lockfast_sharing + 1;
    END IF;
    IF NOT id <=> @lockfast_self THEN
      SET granted_to = its_client, has_moved = 1;
      CALL lockfast_push(its_client, CONCAT_WS('\t',
        'G', HEX(id), next_fence, @lockfast_now, lasts, lock_name), 1);
    END IF;
    IF @lockfast_watched THEN
      CALL lockfast_tell('g', lock_name, its_client, next_fence, lasts + its_delay);
    END IF;
  END WHILE;
  IF has_moved THEN
    -- Another client finds that in its mail before a grant of the usual length ends.
    CALL lockfast_lead(lock_name, granted_to, lasts < 1500000);
  END IF;
END
