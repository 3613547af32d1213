-- Wakes a client whose connection sleeps in lockfast_listen. The named lock says which connection
-- that is; without one there is nobody to be woken. Its name holds the client's secret, so that
-- nobody else can have another connection woken.
CREATE PROCEDURE lockfast_wake(IN whom CHAR(12))
  SQL SECURITY INVOKER
BEGIN
  DECLARE known CHAR(32) CHARACTER SET latin1;
  DECLARE listener BIGINT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  -- 1094: it has just gone. Otherwise it may not be woken and must find out by itself.
  DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET @lockfast_deaf = 1;
  SELECT HEX(c.who) INTO known FROM lockfast_clients c WHERE c.client = UNHEX(whom);
  IF known IS NOT NULL THEN
    SET listener = IS_USED_LOCK(CONCAT('lockfast:l:', known));
  END IF;
  IF listener IS NOT NULL THEN
    KILL QUERY listener;
  END IF;
END
