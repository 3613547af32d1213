-- One release that somebody else waits for, or of what was shared, or of nothing. Adds a line to
-- @lockfast_answers: its number and whether it was held.
CREATE PROCEDURE lockfast_leave(IN at INT, IN lock_name VARBINARY(255), IN id BINARY(16))
  SQL SECURITY DEFINER
BEGIN
  DECLARE known_stage INT;
  DECLARE known_fence BIGINT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL lockfast_open(lock_name);
  IF @lockfast_holder = id THEN
    SET known_stage = 1, known_fence = @lockfast_fence;
    SET @lockfast_holder = NULL, @lockfast_until = @lockfast_now;
  ELSEIF @lockfast_crowd > 0 THEN
    SELECT stage, fence INTO known_stage, known_fence
      FROM lockfast_claims WHERE name = lock_name AND holder = id;
    IF known_stage IS NOT NULL THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1;
    END IF;
  END IF;
  IF @lockfast_watched AND known_stage < 2 THEN
    CALL lockfast_tell(IF(known_stage = 1, 'r', 'a'), lock_name, id,
      IF(known_stage = 1, known_fence, NULL), 0);
  END IF;
  CALL lockfast_settle(lock_name);
  IF known_stage = 0 THEN
    CALL lockfast_lead(lock_name, NULL, 1);
  END IF;
  CALL lockfast_close(lock_name);
  SET @lockfast_answers = CONCAT(@lockfast_answers, at, '\t', known_stage <=> 1, '\n');
END
