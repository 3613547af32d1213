-- A value: its version, its bytes and for how much longer it is kept (0: until it is removed); no row
-- if there is none. The clock is read first: what was written after that is seen, so that nothing
-- seems to have ended that was written again.
CREATE PROCEDURE lockfast_read(IN value_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE now_us BIGINT;
    -- A replica may lack what was written.
    IF @@GLOBAL.read_only THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
    END IF;
    CALL lockfast_clock(now_us);
    SELECT v.version, v.bytes, COALESCE(v.until_us - now_us, 0) FROM lockfast_values v
     WHERE v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
