-- Many acquisitions: those of locks that are free at once, the others one by one.
CREATE PROCEDURE lockfast_take_all(IN takes LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE at, its_mode, may_wait INT;
  DECLARE granted INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE its_ttl, its_delay, its_floor BIGINT;
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE grants LONGTEXT CHARACTER SET utf8mb4;
  DECLARE others CURSOR FOR
    SELECT j.at, j.name, UNHEX(j.holder), j.mode, j.ttl, j.delay, j.floor, j.may_wait
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]',
             may_wait INT PATH '$[6]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE granted = 0 OR j.mode <> 0 OR NOT l.holder <=> UNHEX(j.holder)
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched AND @lockfast_floor < 9007199254740991 THEN
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    SELECT j.name, GREATEST(@lockfast_now, @lockfast_floor + 1, j.floor + 1),
           UNHEX(j.holder), @lockfast_now + j.ttl + j.delay, @lockfast_now, 0
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]')) j
     WHERE j.mode = 0 AND j.floor <= @lockfast_now + 60000000
    ON DUPLICATE KEY UPDATE
      -- From left to right, each sees what those before it did: since_us tells whether it is free.
      since_us = IF(crowd = 0 AND (lockfast_locks.holder IS NULL OR until_us <= @lockfast_now)
                    AND fence < 9007199254740991, @lockfast_now, since_us),
      fence = IF(since_us = @lockfast_now AND crowd = 0
                 AND (lockfast_locks.holder IS NULL OR until_us <= @lockfast_now),
                 GREATEST(fence + 1, VALUES(fence)), fence),
      holder = IF(since_us = @lockfast_now AND crowd = 0
                  AND (lockfast_locks.holder IS NULL OR until_us <= @lockfast_now),
                  VALUES(holder), lockfast_locks.holder),
      until_us = IF(lockfast_locks.holder = VALUES(holder)
                    AND (until_us > @lockfast_now OR since_us = @lockfast_now),
                    VALUES(until_us), until_us);
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\tG\t', l.fence SEPARATOR '\n') INTO granted, grants
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE j.mode = 0 AND l.holder = UNHEX(j.holder) AND l.until_us > @lockfast_now;
    IF granted > 0 THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, grants, '\n');
    END IF;
  END IF;
  IF granted < JSON_LENGTH(takes) THEN
    OPEN others;
    FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    WHILE NOT is_over DO
      CALL lockfast_enter(at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
      FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    END WHILE;
    CLOSE others;
  END IF;
END
