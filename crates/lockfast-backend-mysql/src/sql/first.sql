-- One acquisition of a lock that nobody has used yet.
CREATE PROCEDURE lockfast_first(
  IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, OUT is_mine TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE its_fence BIGINT DEFAULT GREATEST(@lockfast_now, @lockfast_floor + 1, its_floor + 1);
  DECLARE known INT;
  -- Somebody was faster.
  DECLARE CONTINUE HANDLER FOR 1062 SET is_mine = 0;
  -- A SELECT of its own, because one inside of another statement would lock the row for reading,
  -- and two who have that and want more are in each other's way.
  SELECT COUNT(*) INTO known FROM lockfast_locks WHERE name = lock_name;
  SET is_mine = known = 0 AND its_mode = 0 AND NOT @lockfast_watched
    AND its_floor <= @lockfast_now + 60000000 AND its_fence < 9007199254740991;
  IF is_mine THEN
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name, its_fence, id, @lockfast_now + its_ttl + its_delay, @lockfast_now, 0);
  END IF;
  IF is_mine THEN
    SET @lockfast_answers = CONCAT('1\tG\t', its_fence, '\n');
  END IF;
END
