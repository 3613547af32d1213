-- One acquisition on its own.
CREATE PROCEDURE lockfast_take(
  IN who CHAR(12), IN its_link BIGINT, IN lock_name VARBINARY(255), IN holder_hex CHAR(32),
  IN its_mode INT, IN its_ttl BIGINT, IN its_delay BIGINT, IN its_floor BIGINT,
  IN may_wait TINYINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
  DECLARE is_free TINYINT DEFAULT 0;
  CALL lockfast_begin(who, its_link);
  IF its_mode = 0 AND NOT @lockfast_watched AND its_floor <= @lockfast_now + 60000000
     AND @lockfast_floor < 9007199254740991 THEN
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name,
            LAST_INSERT_ID(GREATEST(@lockfast_now, @lockfast_floor + 1, its_floor + 1)), id,
            @lockfast_now + its_ttl + its_delay, @lockfast_now, 0)
    ON DUPLICATE KEY UPDATE
      -- From left to right, each sees what those before it did: since_us tells whether it is free.
      since_us = IF(crowd = 0 AND (holder IS NULL OR until_us <= @lockfast_now)
                    AND fence < 9007199254740991, @lockfast_now, since_us),
      fence = LAST_INSERT_ID(
        IF(since_us = @lockfast_now AND crowd = 0 AND (holder IS NULL OR until_us <= @lockfast_now),
           GREATEST(fence + 1, VALUES(fence)), fence)),
      holder =
        IF(since_us = @lockfast_now AND crowd = 0 AND (holder IS NULL OR until_us <= @lockfast_now),
           VALUES(holder), holder),
      until_us = IF(holder = VALUES(holder)
                    AND (until_us > @lockfast_now OR since_us = @lockfast_now),
                    VALUES(until_us), until_us);
    SET is_free = ROW_COUNT() > 0;
  END IF;
  IF is_free THEN
    SET @lockfast_answers = CONCAT('1\tG\t', LAST_INSERT_ID(), '\n');
  ELSE
    CALL lockfast_enter(1, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
  END IF;
  CALL lockfast_end();
END
