-- Many releases: those that nobody waits for at once, the others one by one. Each has a line with
-- its number in the answer, or all have the same line, with a star.
CREATE PROCEDURE lockfast_give_all(
  IN gives LONGTEXT CHARACTER SET utf8mb4, IN give_count INT)
  SQL SECURITY INVOKER
give_all: BEGIN
  DECLARE at INT;
  DECLARE plain INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE answers LONGTEXT CHARACTER SET utf8mb4;
  -- A statement reads it faster than what it is copied from.
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE others CURSOR FOR
    SELECT j.at, j.name, UNHEX(j.holder)
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE plain = 0 OR l.since_us <> j.at OR l.until_us <> now_us OR l.name IS NULL
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched THEN
    -- Since when a lock is held means nothing when it is not, so it tells which release it was.
    UPDATE JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
       SET l.holder = NULL, l.until_us = now_us, l.since_us = j.at, l.offered = 0
     WHERE l.holder = UNHEX(j.holder) AND l.crowd = 0 AND l.until_us > now_us;
    IF ROW_COUNT() = give_count THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, '*\t1\n');
      LEAVE give_all;
    END IF;
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\t1' SEPARATOR '\n') INTO plain, answers
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE l.since_us = j.at AND l.until_us = now_us;
    IF plain > 0 THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, answers, '\n');
    END IF;
  END IF;
  IF plain < give_count THEN
    OPEN others;
    FETCH others INTO at, lock_name, id;
    WHILE NOT is_over DO
      CALL lockfast_leave(at, lock_name, id);
      FETCH others INTO at, lock_name, id;
    END WHILE;
    CLOSE others;
  END IF;
END
