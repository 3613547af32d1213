-- One acquisition on its own. Most are of a lock that exists and is free: one statement, which
-- commits itself, and needs no floor because the row has the last fence. It reads no other table,
-- which would take the server longer than everything else here.
CREATE PROCEDURE lockfast_take(
  IN who CHAR(12), IN lock_name VARBINARY(255), IN holder_hex CHAR(32), IN its_mode INT,
  IN its_ttl BIGINT, IN its_delay BIGINT, IN its_floor BIGINT, IN may_wait TINYINT)
  SQL SECURITY DEFINER
take: BEGIN
  DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE watched BIGINT;
  DECLARE is_mine TINYINT DEFAULT 0;
  SELECT watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
  IF its_mode = 0 AND watched <= now_us AND its_floor <= now_us + 60000000 AND NOT @@GLOBAL.read_only
     AND IS_USED_LOCK(CONCAT('lockfast:a:', who)) <=> CONNECTION_ID() THEN
    UPDATE lockfast_locks
       SET fence = LAST_INSERT_ID(GREATEST(fence + 1, its_floor + 1, now_us)), holder = id,
           until_us = now_us + its_ttl + its_delay, since_us = now_us
     WHERE name = lock_name AND crowd = 0 AND (holder IS NULL OR until_us <= now_us)
       AND fence < 9007199254740991;
    SET is_mine = ROW_COUNT() > 0;
    COMMIT;
    IF is_mine THEN
      SELECT now_us, CONCAT('1\tG\t', LAST_INSERT_ID(), '\n'), '', 0;
      LEAVE take;
    END IF;
  END IF;
  CALL lockfast_begin(who);
  CALL lockfast_first(lock_name, id, its_mode, its_ttl, its_delay, its_floor, is_mine);
  IF NOT is_mine THEN
    CALL lockfast_enter(1, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
  END IF;
  CALL lockfast_end();
END
