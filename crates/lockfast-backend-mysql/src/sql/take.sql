-- One acquisition on its own. Most are of a lock that exists and is free: one statement, which
-- commits itself, and needs no floor because the row has the last fence. It reads no other table,
-- which would take the server longer than everything else here.
--
-- Whoever may wait and is answered W has a claim in the line. When its turn comes it has the lock for
-- 1.5 s, and all of its ttl from its first renewal (lockfast_work) on. That is told by a line G with
-- holder, fence, time, for how long and name: by mail (lockfast_listen), and in the third column of
-- the answer to whatever it asks next.
CREATE PROCEDURE lockfast_take(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN holder_hex CHAR(32), IN its_mode INT,
  IN its_ttl BIGINT, IN its_delay BIGINT, IN its_floor BIGINT, IN may_wait TINYINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  take: BEGIN
    DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
    DECLARE now_us, watched BIGINT;
    DECLARE is_mine TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    IF NOT COALESCE(
         LENGTH(id) = 16 AND LEFT(id, 6) = UNHEX(LEFT(caller, 12)) AND LENGTH(lock_name) > 0
         AND its_mode >= -1 AND its_ttl BETWEEN 1 AND 31622400000000
         AND its_delay BETWEEN 0 AND 31622400000000 AND its_floor >= 0, 0) THEN
      CALL lockfast_refuse();
    END IF;
    SELECT s.watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
    IF its_mode = 0 AND watched <= now_us AND its_floor <= now_us + 60000000
       AND NOT @@GLOBAL.read_only
       AND IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      UPDATE lockfast_locks
         SET fence = LAST_INSERT_ID(GREATEST(fence + 1, its_floor + 1, now_us)), holder = id,
             until_us = now_us + its_ttl + its_delay, since_us = now_us, offered = 0
       WHERE name = lock_name AND crowd = 0 AND (holder IS NULL OR until_us <= now_us)
         AND fence < 9007199254740991;
      SET is_mine = ROW_COUNT() > 0;
      COMMIT AND NO CHAIN NO RELEASE;
      IF is_mine THEN
        SELECT now_us, CONCAT('1\tG\t', LAST_INSERT_ID(), '\n'), '', 0;
        LEAVE take;
      END IF;
    END IF;
    CALL lockfast_begin(caller);
    CALL lockfast_first(lock_name, id, its_mode, its_ttl, its_delay, its_floor, is_mine);
    IF NOT is_mine THEN
      CALL lockfast_enter(1, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
    END IF;
    CALL lockfast_end();
  END;
END
