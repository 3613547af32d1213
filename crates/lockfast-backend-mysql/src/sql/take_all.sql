-- Many acquisitions: those of locks that are free at once, then those of locks that nobody has
-- used yet, and the others, also those that make no sense, one by one. Each has a line with its number in the answer, or all
-- have the same line, with a star.
CREATE PROCEDURE lockfast_take_all(
  IN takes LONGTEXT CHARACTER SET utf8mb4, IN take_count INT)
  SQL SECURITY INVOKER
take_all: BEGIN
  DECLARE at, its_mode, may_wait INT;
  DECLARE granted INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE its_ttl, its_delay, its_floor BIGINT;
  -- A statement reads these faster than what they are copied from.
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE floor_of_all BIGINT DEFAULT @lockfast_floor;
  DECLARE asker BINARY(6) DEFAULT @lockfast_who;
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
     WHERE granted = 0 OR j.mode <> 0 OR l.since_us <> now_us OR NOT l.holder <=> UNHEX(j.holder)
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched AND floor_of_all < 9007199254740991 THEN
    -- When two want the same lock, the first gets it. Those whose fence would not be the clock's
    -- are left to the others, so that there is one answer for all.
    UPDATE JSON_TABLE(takes, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
       SET l.fence = now_us, l.holder = UNHEX(j.holder), l.until_us = now_us + j.ttl + j.delay,
           l.since_us = now_us, l.offered = 0
     WHERE j.mode = 0 AND j.floor < now_us AND l.fence < now_us AND l.crowd = 0
       AND LENGTH(j.name) > 0 AND LENGTH(UNHEX(j.holder)) = 16
       AND LEFT(UNHEX(j.holder), 6) = asker AND j.ttl BETWEEN 1 AND 31622400000000
       AND j.delay BETWEEN 0 AND 31622400000000
       AND (l.holder IS NULL OR l.until_us <= now_us);
    IF ROW_COUNT() = take_count THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, '*\tG\t', now_us, '\n');
      LEAVE take_all;
    END IF;
    INSERT IGNORE INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    SELECT j.name, GREATEST(now_us, floor_of_all + 1, j.floor + 1), UNHEX(j.holder),
           now_us + j.ttl + j.delay, now_us, 0
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE l.name IS NULL AND j.mode = 0 AND j.floor BETWEEN 0 AND now_us + 60000000
       AND LENGTH(j.name) > 0 AND LENGTH(UNHEX(j.holder)) = 16
       AND LEFT(UNHEX(j.holder), 6) = asker AND j.ttl BETWEEN 1 AND 31622400000000
       AND j.delay BETWEEN 0 AND 31622400000000;
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\tG\t', l.fence SEPARATOR '\n') INTO granted, grants
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE j.mode = 0 AND l.since_us = now_us AND l.holder = UNHEX(j.holder);
    IF granted > 0 THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, grants, '\n');
    END IF;
  END IF;
  IF granted < take_count THEN
    OPEN others;
    FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    WHILE NOT is_over DO
      CALL lockfast_enter(at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
      FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    END WHILE;
    CLOSE others;
  END IF;
END
