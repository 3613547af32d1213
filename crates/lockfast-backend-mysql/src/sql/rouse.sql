-- Whether a listener can be woken at all, tried on the client's own.
CREATE PROCEDURE lockfast_rouse(IN caller CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_deaf = 0;
  CALL lockfast_wake(LEFT(caller, 12));
  SELECT @lockfast_deaf, IS_USED_LOCK(CONCAT('lockfast:l:', caller)) IS NOT NULL;
END
