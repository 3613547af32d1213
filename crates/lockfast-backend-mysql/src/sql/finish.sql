-- Ends claims that ran out long ago and that nobody has looked at since.
CREATE PROCEDURE lockfast_finish(IN who CHAR(12), IN idle_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE lock_name VARBINARY(255);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE stale CURSOR FOR
    SELECT DISTINCT name FROM lockfast_claims WHERE until_us < @lockfast_now - idle_us
     ORDER BY name LIMIT 100;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  CALL lockfast_begin(who);
  OPEN stale;
  FETCH stale INTO lock_name;
  WHILE NOT is_over DO
    CALL lockfast_open(lock_name);
    CALL lockfast_settle(lock_name);
    CALL lockfast_close(lock_name);
    SET is_over = 0;
    FETCH stale INTO lock_name;
  END WHILE;
  CLOSE stale;
  CALL lockfast_end();
END
