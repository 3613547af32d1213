-- One release on its own. Most are of a lock that nobody waits for: one statement, which commits
-- itself.
CREATE PROCEDURE lockfast_give(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN holder_hex CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  give: BEGIN
    DECLARE now_us, watched BIGINT;
    DECLARE is_plain TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    SELECT s.watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
    IF watched <= now_us AND NOT @@GLOBAL.read_only
       AND IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      UPDATE lockfast_locks SET holder = NULL, until_us = now_us, offered = 0
       WHERE name = lock_name AND holder = UNHEX(holder_hex) AND crowd = 0 AND until_us > now_us;
      SET is_plain = ROW_COUNT() > 0;
      COMMIT AND NO CHAIN NO RELEASE;
      IF is_plain THEN
        SELECT now_us, '1\t1\n', '', 0;
        LEAVE give;
      END IF;
    END IF;
    CALL lockfast_begin(caller);
    CALL lockfast_leave(1, lock_name, UNHEX(holder_hex));
    CALL lockfast_end();
  END;
END
