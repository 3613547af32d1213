-- An operator takes a lock away. Answers N nobody has it, O it has another fence (seen), or V who
-- lost it (seen).
CREATE PROCEDURE lockfast_revoke(
  IN who CHAR(12), IN lock_name VARBINARY(255), IN expected BIGINT,
  IN why VARCHAR(1024) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE id BINARY(16);
  DECLARE its_fence BIGINT;
  DECLARE is_expected, is_over TINYINT DEFAULT 0;
  DECLARE losers CURSOR FOR
    SELECT holder, fence FROM lockfast_claims WHERE name = lock_name AND stage = 1;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  CALL lockfast_begin(who);
  CALL lockfast_open(lock_name);
  CALL lockfast_seen(lock_name);
  SELECT COUNT(*) > 0 INTO is_expected FROM lockfast_claims
   WHERE name = lock_name AND stage = 1 AND (expected = 0 OR fence = expected);
  IF LOCATE(';', @lockfast_seen) = 0 THEN
    SET @lockfast_answers = 'N';
  ELSEIF NOT is_expected AND NOT (@lockfast_holder IS NOT NULL
                                  AND (expected = 0 OR @lockfast_fence = expected)) THEN
    SET @lockfast_answers = CONCAT('O\t', @lockfast_seen);
  ELSE
    SET @lockfast_answers = CONCAT('V\t', @lockfast_seen);
    IF @lockfast_holder IS NOT NULL THEN
      INSERT INTO lockfast_claims (name, holder, ticket, mode, stage, fence, ttl_us, delay_us,
                                   floor, until_us, since_us, reason)
      VALUES (lock_name, @lockfast_holder, 0, 0, 1, @lockfast_fence, 0, 0, 0, @lockfast_until,
              @lockfast_since, '');
      SET @lockfast_crowd = @lockfast_crowd + 1, @lockfast_holder = NULL,
          @lockfast_until = @lockfast_now;
    END IF;
    SET is_over = 0;
    OPEN losers;
    FETCH losers INTO id, its_fence;
    WHILE NOT is_over DO
      CALL lockfast_push(LEFT(id, 6), CONCAT_WS('\t', 'R', HEX(id), why), 1);
      IF @lockfast_watched THEN
        CALL lockfast_tell('v', lock_name, id, its_fence, 0);
      END IF;
      FETCH losers INTO id, its_fence;
    END WHILE;
    CLOSE losers;
    UPDATE lockfast_claims SET stage = 2, reason = why WHERE name = lock_name AND stage = 1;
    CALL lockfast_settle(lock_name);
  END IF;
  CALL lockfast_close(lock_name);
  CALL lockfast_end();
END
