-- An operator takes a lock away. Answers N nobody has it, O it has another fence (seen), or V who
-- lost it (seen).
CREATE PROCEDURE lockfast_revoke(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN expected BIGINT,
  IN why VARCHAR(1024) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE id, heir BINARY(16);
    DECLARE its_fence BIGINT;
    DECLARE is_expected, is_over TINYINT DEFAULT 0;
    DECLARE losers CURSOR FOR
      SELECT c.holder, c.fence FROM lockfast_claims c WHERE c.name = lock_name AND c.stage = 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    CALL lockfast_open(lock_name, NULL);
    CALL lockfast_seen(lock_name);
    SELECT COUNT(*) > 0 INTO is_expected FROM lockfast_claims c
     WHERE c.name = lock_name AND c.stage = 1 AND (expected = 0 OR c.fence = expected);
    IF LOCATE(';', @lockfast_seen) = 0 THEN
      SET @lockfast_answers = 'N';
    ELSEIF NOT is_expected AND NOT (@lockfast_client IS NOT NULL
                                    AND (expected = 0 OR @lockfast_fence = expected)) THEN
      SET @lockfast_answers = CONCAT('O\t', @lockfast_seen);
    ELSE
      SET @lockfast_answers = CONCAT('V\t', @lockfast_seen);
      IF @lockfast_client IS NOT NULL THEN
        INSERT INTO lockfast_claims (name, holder, client, ticket, mode, stage, fence, ttl_us,
                                     delay_us, floor, until_us, since_us, reason)
        SELECT l.name, l.holder, LEFT(l.holder, 6), 0, 0, 1, l.fence, 0, 0, 0, l.until_us,
               l.since_us, ''
          FROM lockfast_locks l WHERE l.name = lock_name;
        SET @lockfast_crowd = @lockfast_crowd + 1, @lockfast_sharing = @lockfast_sharing + 1,
            @lockfast_client = NULL, @lockfast_offered = 0, @lockfast_until = @lockfast_now;
      END IF;
      SET is_over = 0;
      OPEN losers;
      FETCH losers INTO id, its_fence;
      WHILE NOT is_over DO
        CALL lockfast_push(LEFT(id, 6), CONCAT_WS('\t', 'R', HEX(id), why), 1);
        IF @lockfast_watched THEN
          CALL lockfast_tell('v', lock_name, LEFT(id, 6), its_fence, 0);
        END IF;
        FETCH losers INTO id, its_fence;
      END WHILE;
      CLOSE losers;
      UPDATE lockfast_claims SET stage = 2, reason = why WHERE name = lock_name AND stage = 1;
      SET @lockfast_sharing = 0;
      CALL lockfast_settle(lock_name, heir);
    END IF;
    CALL lockfast_close(lock_name, heir);
    CALL lockfast_end();
  END;
END
