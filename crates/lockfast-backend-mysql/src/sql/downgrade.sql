-- A holder that has the lock alone has it together with others from now on: its place moves from the
-- lock's row to a claim, with the same fence and the same end, and whoever that lets in is granted the
-- lock as after a release. Answers D it has the lock shared, now or by an earlier call, C the name is
-- in use otherwise (mode), or as a renewal why it does not have it.
CREATE PROCEDURE lockfast_downgrade(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN holder_hex CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
    DECLARE known_mode, other_mode INT;
    DECLARE heir BINARY(16);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    IF NOT COALESCE(LENGTH(id) = 16 AND LENGTH(lock_name) > 0, 0) THEN
      CALL lockfast_refuse();
    END IF;
    CALL lockfast_begin(caller);
    CALL lockfast_open(lock_name, id);
    IF @lockfast_is_asker THEN
      SET known_mode = 0;
      SELECT c.mode INTO other_mode FROM lockfast_claims c FORCE INDEX (lockfast_claims_mode)
       WHERE c.name = lock_name AND c.mode > 0 AND c.stage <> 2 LIMIT 1;
    ELSEIF @lockfast_crowd > 0 THEN
      SELECT c.mode INTO known_mode FROM lockfast_claims c
       WHERE c.name = lock_name AND c.holder = id AND c.stage = 1;
    END IF;
    IF known_mode > 0 OR other_mode IS NOT NULL THEN
      SET @lockfast_answers = CONCAT('1\tC\t', COALESCE(other_mode, known_mode), '\n');
    ELSEIF known_mode IS NOT NULL THEN
      SET @lockfast_answers = '1\tD\n';
    ELSE
      -- That is asked before the line moves on, which may let it in.
      CALL lockfast_why_lost(
        JSON_ARRAY(JSON_ARRAY(CONVERT(lock_name USING utf8mb4), HEX(id))));
    END IF;
    IF known_mode = 0 AND other_mode IS NULL THEN
      -- It was heard of, so it is no offer any more; that does not make it last longer.
      INSERT INTO lockfast_claims (name, holder, client, ticket, mode, stage, fence, ttl_us, delay_us,
                                   floor, until_us, since_us, reason)
      VALUES (lock_name, id, LEFT(id, 6), 0, -1, 1, @lockfast_fence, 0, 0, 0, @lockfast_until,
              @lockfast_since, '');
      -- A statement that somebody interrupts may do nothing and not say so.
      IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
      END IF;
      SET @lockfast_crowd = @lockfast_crowd + 1, @lockfast_sharing = @lockfast_sharing + 1,
          @lockfast_client = NULL, @lockfast_is_asker = 0, @lockfast_offered = 0,
          @lockfast_until = @lockfast_now;
    END IF;
    CALL lockfast_settle(lock_name, heir);
    CALL lockfast_close(lock_name, heir);
    CALL lockfast_end();
  END;
END
