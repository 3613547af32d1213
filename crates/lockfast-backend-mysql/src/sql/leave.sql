-- One release that somebody else waits for, or of what was shared, or of nothing. Adds a line to
-- @lockfast_answers: its number and whether it was held.
CREATE PROCEDURE lockfast_leave(IN at INT, IN lock_name VARBINARY(255), IN id BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE known_stage INT;
  DECLARE known_fence BIGINT;
  DECLARE heir BINARY(16);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL lockfast_open(lock_name, id);
  IF @lockfast_is_asker THEN
    SET known_stage = 1, known_fence = @lockfast_fence;
    SET @lockfast_client = NULL, @lockfast_is_asker = 0, @lockfast_offered = 0,
        @lockfast_until = @lockfast_now;
  ELSEIF @lockfast_crowd > 0 THEN
    SELECT c.stage, c.fence INTO known_stage, known_fence
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
    IF known_stage IS NOT NULL THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1,
          @lockfast_waiting = @lockfast_waiting - (known_stage IN (0, 3)),
          @lockfast_sharing = @lockfast_sharing - (known_stage = 1),
          @lockfast_asleep = @lockfast_asleep - (known_stage = 3);
    END IF;
  END IF;
  IF @lockfast_watched AND known_stage <> 2 THEN
    CALL lockfast_tell(IF(known_stage = 1, 'r', 'a'), lock_name, LEFT(id, 6),
      IF(known_stage = 1, known_fence, NULL), 0);
  END IF;
  CALL lockfast_settle(lock_name, heir);
  CALL lockfast_close(lock_name, heir);
  SET @lockfast_answers = CONCAT(@lockfast_answers, at, '\t', known_stage <=> 1, '\n');
END
