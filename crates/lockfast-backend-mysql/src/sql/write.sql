-- Writes a value if what is there is what was expected: a version as 32 digits, or '' for no value.
-- Its own version is the id of the write, by which a repetition is known. What is put is NULL for a
-- removal, and is kept for so long, or until it is removed (NULL). Answers 1 written, or 0 with what is
-- there: its version, its bytes and for how much longer it is kept, as lockfast_read does.
CREATE PROCEDURE lockfast_write(
  IN caller CHAR(32), IN value_name VARBINARY(255), IN expected_hex CHAR(32), IN own_hex CHAR(32),
  IN put MEDIUMBLOB, IN keep_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  writing: BEGIN
    DECLARE own VARBINARY(16) DEFAULT UNHEX(own_hex);
    DECLARE expected VARBINARY(16) DEFAULT UNHEX(NULLIF(expected_hex, ''));
    DECLARE found VARBINARY(16);
    DECLARE now_us, its_end BIGINT;
    DECLARE is_row, is_done TINYINT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    IF NOT COALESCE(
         LENGTH(own) = 16 AND (expected_hex = '' OR LENGTH(expected) = 16)
         AND LENGTH(value_name) > 0 AND COALESCE(LENGTH(put), 0) <= 65536
         AND COALESCE(keep_us, 0) BETWEEN 0 AND 1000000000000000000, 0) THEN
      CALL lockfast_refuse();
    END IF;
    CALL lockfast_begin(caller);
    comparing: LOOP
      SET is_row = 0, found = NULL, its_end = NULL;
      SELECT 1, v.version, v.until_us INTO is_row, found, its_end
        FROM lockfast_values v WHERE v.name = value_name FOR UPDATE;
      CALL lockfast_clock(now_us);
      IF found = own THEN
        LEAVE comparing;
      ELSEIF put IS NULL AND NOT is_row AND (is_done OR expected IS NULL) THEN
        SET is_done = 1;
        LEAVE comparing;
      END IF;
      IF its_end <= now_us THEN
        SET found = NULL;
      END IF;
      IF NOT found <=> expected THEN
        SELECT now_us, '0', '', 0, v.version, v.bytes, COALESCE(v.until_us - now_us, 0)
          FROM (SELECT 1) one
          LEFT JOIN lockfast_values v
                 ON v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
        COMMIT AND NO CHAIN NO RELEASE;
        LEAVE writing;
      END IF;
      -- A statement that somebody interrupts may do nothing and not say so, and a row that somebody
      -- else has just made is not ours: what is there is compared again until this is.
      IF put IS NULL THEN
        DELETE FROM lockfast_values WHERE name = value_name;
      ELSEIF is_row THEN
        UPDATE lockfast_values
           SET version = own, bytes = put, until_us = now_us + keep_us WHERE name = value_name;
      ELSE
        INSERT INTO lockfast_values (name, version, bytes, until_us)
        VALUES (value_name, own, put, now_us + keep_us) ON DUPLICATE KEY UPDATE name = value_name;
      END IF;
      SET is_done = 1;
    END LOOP;
    IF is_done AND @lockfast_watched THEN
      CALL lockfast_tell('c', value_name, @lockfast_who, NULL, 0);
    END IF;
    SET @lockfast_answers = '1';
    CALL lockfast_end();
  END;
END
