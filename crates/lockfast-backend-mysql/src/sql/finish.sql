-- Ends claims that ran out more than a minute ago and that nobody has looked at since.
CREATE PROCEDURE lockfast_finish(IN caller CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE lock_name VARBINARY(255);
    DECLARE heir BINARY(16);
    DECLARE is_over TINYINT DEFAULT 0;
    DECLARE stale CURSOR FOR
      SELECT DISTINCT c.name FROM lockfast_claims c WHERE c.until_us < @lockfast_now - 60000000
       ORDER BY c.name LIMIT 100;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    OPEN stale;
    SET is_over = 0;
    FETCH stale INTO lock_name;
    WHILE NOT is_over DO
      SET heir = NULL;
      CALL lockfast_open(lock_name, NULL);
      CALL lockfast_settle(lock_name, heir);
      CALL lockfast_close(lock_name, heir);
      SET is_over = 0;
      FETCH stale INTO lock_name;
    END WHILE;
    CLOSE stale;
    CALL lockfast_end();
  END;
END
