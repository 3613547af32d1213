-- One release on its own. Most are of a lock that nobody waits for: one statement, which commits
-- itself.
CREATE PROCEDURE lockfast_give(
  IN who CHAR(12), IN lock_name VARBINARY(255), IN holder_hex CHAR(32))
  SQL SECURITY DEFINER
give: BEGIN
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE watched BIGINT;
  DECLARE is_plain TINYINT DEFAULT 0;
  SELECT watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
  IF watched <= now_us AND NOT @@GLOBAL.read_only
     AND IS_USED_LOCK(CONCAT('lockfast:a:', who)) <=> CONNECTION_ID() THEN
    UPDATE lockfast_locks SET holder = NULL, until_us = now_us
     WHERE name = lock_name AND holder = UNHEX(holder_hex) AND crowd = 0 AND until_us > now_us;
    SET is_plain = ROW_COUNT() > 0;
    COMMIT;
    IF is_plain THEN
      SELECT now_us, '1\t1\n', '', 0;
      LEAVE give;
    END IF;
  END IF;
  CALL lockfast_begin(who);
  CALL lockfast_leave(1, lock_name, UNHEX(holder_hex));
  CALL lockfast_end();
END
