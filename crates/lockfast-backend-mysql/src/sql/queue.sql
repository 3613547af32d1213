-- Puts a claim at the end of the line, or lets it keep its place, and sees what it gets.
CREATE PROCEDURE lockfast_queue(
  IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, IN is_known TINYINT, IN may_wait TINYINT,
  INOUT heir BINARY(16), OUT answer LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY INVOKER
BEGIN
  DECLARE its_stage INT;
  DECLARE its_fence BIGINT;
  -- A claim that nobody asks for any more is dropped in the end. Before that it is dropped when its
  -- turn comes, if its client is gone by then.
  DECLARE its_end BIGINT DEFAULT @lockfast_now + 3600000000;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF is_known THEN
    IF may_wait THEN
      -- It only looks, and may be dead by now: it is granted like any other that waits.
      SET @lockfast_self = NULL;
    END IF;
    UPDATE lockfast_claims
       SET ttl_us = its_ttl, delay_us = its_delay, floor = its_floor, until_us = its_end
     WHERE name = lock_name AND holder = id;
  ELSE
    SET @lockfast_ticket = @lockfast_ticket + 1, @lockfast_crowd = @lockfast_crowd + 1,
        @lockfast_waiting = @lockfast_waiting + 1;
    INSERT INTO lockfast_claims (name, holder, client, ticket, mode, stage, fence, ttl_us, delay_us,
                                 floor, until_us, since_us, reason)
    VALUES (lock_name, id, LEFT(id, 6), @lockfast_ticket, its_mode, 0, 0, its_ttl, its_delay,
            its_floor, its_end, @lockfast_now, '');
  END IF;
  CALL lockfast_settle(lock_name, heir);
  IF @lockfast_is_asker THEN
    SET its_stage = 1, its_fence = @lockfast_fence;
  ELSEIF its_mode <> 0 THEN
    SELECT c.stage, c.fence INTO its_stage, its_fence
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
  END IF;
  IF its_stage = 1 AND @lockfast_self IS NOT NULL THEN
    SET answer = CONCAT('G\t', its_fence);
  ELSEIF may_wait THEN
    IF @lockfast_watched AND NOT is_known THEN
      CALL lockfast_tell('q', lock_name, LEFT(id, 6), NULL, 0);
    END IF;
    CALL lockfast_measure(lock_name);
    SET answer = CONCAT('W\t', @lockfast_blocked);
  ELSE
    DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
    SET @lockfast_crowd = @lockfast_crowd - 1, @lockfast_waiting = @lockfast_waiting - 1;
    IF is_known THEN
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, LEFT(id, 6), NULL, 0);
      END IF;
      CALL lockfast_settle(lock_name, heir);
    END IF;
    CALL lockfast_seen(lock_name);
    SET answer = CONCAT('T\t', @lockfast_seen);
  END IF;
END
