-- Many renewals. Those that are not renewed are answered with why they do not have the lock.
CREATE PROCEDURE lockfast_renew_all(IN renews LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY INVOKER
BEGIN
  DECLARE lock_name VARBINARY(255);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE renewed INT;
  -- A statement reads it faster than what it is copied from.
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE has_claims TINYINT;
  DECLARE shorter CURSOR FOR
    SELECT DISTINCT l.name
      FROM JSON_TABLE(renews, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
             ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
      LEFT JOIN lockfast_claims c ON c.name = l.name AND c.holder = UNHEX(j.holder)
     WHERE l.waiting > l.asleep
       AND IF(l.holder = UNHEX(j.holder), l.until_us, c.until_us) > now_us + j.ttl + j.delay;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  -- A SELECT of its own locks no row for reading.
  SELECT COUNT(*) INTO has_claims FROM (SELECT 1 FROM lockfast_claims LIMIT 1) claims;
  IF has_claims THEN
    OPEN shorter;
  END IF;
  UPDATE JSON_TABLE(renews, '$[*]' COLUMNS (
           name VARBINARY(255) PATH '$[0]',
           holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
           ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
    STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     SET l.until_us = now_us + j.ttl + j.delay, l.offered = 0
   WHERE l.holder = UNHEX(j.holder) AND l.until_us > now_us;
  SET renewed = ROW_COUNT();
  IF renewed < JSON_LENGTH(renews) THEN
    -- A statement that somebody interrupts may do nothing and not say so.
    IF renewed = 0 AND EXISTS (
         SELECT 1
           FROM JSON_TABLE(renews, '$[*]' COLUMNS (
                  name VARBINARY(255) PATH '$[0]',
                  holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
                  ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
           STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
          WHERE l.holder = UNHEX(j.holder) AND l.until_us > now_us
            AND l.until_us <> now_us + j.ttl + j.delay) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
    END IF;
    UPDATE JSON_TABLE(renews, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
             ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
      STRAIGHT_JOIN lockfast_claims c
         ON c.name = j.name AND c.holder = UNHEX(j.holder)
       SET c.until_us = now_us + j.ttl + j.delay, c.offered = 0
     WHERE c.stage = 1 AND c.until_us > now_us;
    CALL lockfast_why_lost(renews);
  END IF;
  -- Whoever waits for a lease that ends sooner than it was told looks sooner.
  IF has_claims THEN
    SET is_over = 0;
    FETCH shorter INTO lock_name;
    WHILE NOT is_over DO
      CALL lockfast_open(lock_name, NULL);
      CALL lockfast_lead(lock_name, '', 1);
      CALL lockfast_close(lock_name, NULL);
      SET is_over = 0;
      FETCH shorter INTO lock_name;
    END WHILE;
    CLOSE shorter;
  END IF;
END
