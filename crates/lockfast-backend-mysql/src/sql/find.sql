-- Whether a client is connected.
CREATE PROCEDURE lockfast_find(IN whom BINARY(6), OUT is_there TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE known CHAR(32) CHARACTER SET latin1;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF whom = @lockfast_who THEN
    SET is_there = 1;
  ELSE
    SELECT HEX(c.who) INTO known FROM lockfast_clients c WHERE c.client = whom;
    SET is_there = known IS NOT NULL AND IS_USED_LOCK(CONCAT('lockfast:a:', known)) IS NOT NULL;
  END IF;
END
