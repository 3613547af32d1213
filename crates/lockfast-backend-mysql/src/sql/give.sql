-- One release on its own.
CREATE PROCEDURE lockfast_give(
  IN who CHAR(12), IN its_link BIGINT, IN lock_name VARBINARY(255), IN holder_hex CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
  DECLARE is_plain TINYINT DEFAULT 0;
  CALL lockfast_begin(who, its_link);
  IF NOT @lockfast_watched THEN
    UPDATE lockfast_locks SET holder = NULL, until_us = @lockfast_now
     WHERE name = lock_name AND holder = id AND crowd = 0 AND until_us > @lockfast_now;
    SET is_plain = ROW_COUNT() > 0;
  END IF;
  IF is_plain THEN
    SET @lockfast_answers = '1\t1\n';
  ELSE
    CALL lockfast_leave(1, lock_name, id);
  END IF;
  CALL lockfast_end();
END
