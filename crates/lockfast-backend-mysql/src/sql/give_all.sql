-- Many releases: those that nobody waits for at once, the others one by one.
CREATE PROCEDURE lockfast_give_all(IN gives LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE at INT;
  DECLARE plain INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE answers LONGTEXT CHARACTER SET utf8mb4;
  DECLARE others CURSOR FOR
    SELECT j.at, j.name, UNHEX(j.holder)
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE plain = 0 OR NOT l.holder <=> UNHEX(j.holder) OR l.crowd > 0
        OR l.until_us <= @lockfast_now
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched THEN
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\t1' SEPARATOR '\n') INTO plain, answers
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE l.holder = UNHEX(j.holder) AND l.crowd = 0 AND l.until_us > @lockfast_now
       FOR UPDATE;
  END IF;
  IF plain < JSON_LENGTH(gives) THEN
    OPEN others;
  END IF;
  IF plain > 0 THEN
    SET @lockfast_answers = CONCAT(@lockfast_answers, answers, '\n');
    UPDATE JSON_TABLE(gives, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
       SET l.holder = NULL, l.until_us = @lockfast_now
     WHERE l.holder = UNHEX(j.holder) AND l.crowd = 0 AND l.until_us > @lockfast_now;
  END IF;
  IF plain < JSON_LENGTH(gives) THEN
    FETCH others INTO at, lock_name, id;
    WHILE NOT is_over DO
      CALL lockfast_leave(at, lock_name, id);
      FETCH others INTO at, lock_name, id;
    END WHILE;
    CLOSE others;
  END IF;
END
