-- Puts a claim at the end of the line, or lets it keep its place, and sees what it gets.
CREATE PROCEDURE lockfast_queue(
  IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, IN its_end BIGINT, IN is_known TINYINT,
  IN may_wait TINYINT, OUT answer LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE its_stage INT;
  DECLARE its_fence BIGINT;
  DECLARE is_behind TINYINT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF is_known THEN
    UPDATE lockfast_claims
       SET ttl_us = its_ttl, delay_us = its_delay, floor = its_floor, until_us = its_end
     WHERE name = lock_name AND holder = id;
  ELSE
    INSERT INTO lockfast_claims (name, holder, ticket, mode, stage, fence, ttl_us, delay_us, floor,
                                 until_us, since_us, reason)
    SELECT lock_name, id, COALESCE(MAX(ticket), 0) + 1, its_mode, 0, 0, its_ttl, its_delay,
           its_floor, its_end, @lockfast_now, ''
      FROM lockfast_claims WHERE name = lock_name;
    SET @lockfast_crowd = @lockfast_crowd + 1;
  END IF;
  CALL lockfast_settle(lock_name);
  IF @lockfast_holder = id THEN
    SET its_stage = 1, its_fence = @lockfast_fence;
  ELSE
    SELECT stage, fence INTO its_stage, its_fence
      FROM lockfast_claims WHERE name = lock_name AND holder = id;
  END IF;
  IF its_stage = 1 THEN
    SET answer = CONCAT('G\t', its_fence);
  ELSEIF may_wait THEN
    IF @lockfast_watched AND NOT is_known THEN
      CALL lockfast_tell('q', lock_name, id, NULL, 0);
    END IF;
    -- Of each client, the first looks by itself when what is in the way ends.
    SELECT COUNT(*) > 0 INTO is_behind
      FROM lockfast_claims a JOIN lockfast_claims b ON b.name = lock_name AND b.holder = id
     WHERE a.name = lock_name AND a.stage = 0 AND a.ticket < b.ticket
       AND LEFT(a.holder, 6) = @lockfast_who;
    CALL lockfast_measure(lock_name, its_mode);
    SET answer = CONCAT('W\t', IF(is_behind, '', @lockfast_blocked));
  ELSE
    DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
    SET @lockfast_crowd = @lockfast_crowd - 1;
    IF is_known THEN
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, id, NULL, 0);
      END IF;
      CALL lockfast_settle(lock_name);
      CALL lockfast_lead(lock_name, NULL, 1);
    END IF;
    CALL lockfast_seen(lock_name);
    SET answer = CONCAT('T\t', @lockfast_seen);
  END IF;
END
