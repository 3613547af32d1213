-- One acquisition whose lock is not simply free. Adds a line to @lockfast_answers: its number and
-- G granted (fence), W waiting (for how long it is blocked), T taken (seen), and the refusals
-- C in use otherwise (mode), H asked for otherwise (mode), R revoked (reason), F floor too high,
-- X fence exhausted.
CREATE PROCEDURE lockfast_enter(
  IN at INT, IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, IN may_wait TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE known_stage, known_mode, other_mode INT;
  DECLARE known_fence, lasts BIGINT;
  DECLARE is_offer TINYINT DEFAULT 0;
  DECLARE known_reason VARCHAR(1024) CHARACTER SET utf8mb4;
  DECLARE answer LONGTEXT CHARACTER SET utf8mb4;
  DECLARE heir BINARY(16);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF NOT COALESCE(
       LENGTH(id) = 16 AND LEFT(id, 6) = @lockfast_who AND LENGTH(lock_name) > 0
       AND its_mode >= -1 AND its_ttl BETWEEN 1 AND 31622400000000
       AND its_delay BETWEEN 0 AND 31622400000000 AND its_floor >= 0 AND may_wait IN (0, 1), 0) THEN
    CALL lockfast_refuse();
  END IF;
  CALL lockfast_open(lock_name, id);
  SET @lockfast_self = id;
  IF @lockfast_asleep > 0 THEN
    CALL lockfast_awaken(lock_name);
  END IF;
  IF @lockfast_crowd > 0 THEN
    SELECT c.stage, c.mode, c.fence, c.reason, c.offered
      INTO known_stage, known_mode, known_fence, known_reason, is_offer
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
    IF known_stage IS NULL AND its_mode <> 0 THEN
      SELECT c.mode INTO other_mode FROM lockfast_claims c FORCE INDEX (lockfast_claims_mode)
       WHERE c.name = lock_name AND c.mode <> 0 AND c.mode <> its_mode AND c.stage <> 2 LIMIT 1;
    END IF;
  END IF;
  IF @lockfast_is_asker THEN
    SET known_stage = 1, known_mode = 0, known_fence = @lockfast_fence,
        is_offer = @lockfast_offered;
  END IF;
  IF known_stage = 2 THEN
    SET answer = CONCAT('R\t', known_reason);
  ELSEIF known_mode <> its_mode THEN
    SET answer = CONCAT('H\t', known_mode);
  ELSEIF known_stage = 1 AND is_offer AND may_wait THEN
    -- It is told again, as it was the first time, because whoever looked may be dead by now.
    SET lasts = LEAST(its_ttl, 1500000), answer = CONCAT('W\t', lasts + its_delay);
    CALL lockfast_push(@lockfast_who, CONCAT_WS('\t',
      'G', HEX(id), known_fence, @lockfast_now, lasts, lock_name), 0);
    IF its_mode = 0 THEN
      SET @lockfast_until = @lockfast_now + lasts + its_delay;
    ELSE
      UPDATE lockfast_claims SET until_us = @lockfast_now + lasts + its_delay
       WHERE name = lock_name AND holder = id;
    END IF;
  ELSEIF known_stage = 1 THEN
    SET answer = CONCAT('G\t', known_fence);
    IF its_mode = 0 THEN
      SET @lockfast_until = @lockfast_now + its_ttl + its_delay, @lockfast_offered = 0;
    ELSE
      UPDATE lockfast_claims
         SET ttl_us = its_ttl, delay_us = its_delay, offered = 0,
             until_us = @lockfast_now + its_ttl + its_delay
       WHERE name = lock_name AND holder = id;
    END IF;
  ELSEIF other_mode IS NOT NULL THEN
    SET answer = CONCAT('C\t', other_mode);
  ELSEIF its_floor > @lockfast_now + 60000000 THEN
    SET answer = 'F';
  ELSEIF GREATEST(@lockfast_fence, @lockfast_floor, its_floor) >= 9007199254740991 THEN
    SET answer = 'X';
  ELSEIF NOT may_wait AND known_stage IS NULL AND @lockfast_client IS NOT NULL THEN
    CALL lockfast_seen(lock_name);
    SET answer = CONCAT('T\t', @lockfast_seen);
  ELSE
    CALL lockfast_queue(lock_name, id, its_mode, its_ttl, its_delay, its_floor,
      known_stage IS NOT NULL, may_wait, heir, answer);
  END IF;
  CALL lockfast_close(lock_name, heir);
  SET @lockfast_self = NULL;
  SET @lockfast_answers = CONCAT(@lockfast_answers, at, '\t', answer, '\n');
END
