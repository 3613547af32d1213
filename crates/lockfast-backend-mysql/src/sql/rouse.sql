-- Whether a listener can be woken at all, tried on the client's own.
CREATE PROCEDURE lockfast_rouse(IN who CHAR(12))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_deaf = 0;
  CALL lockfast_wake(who);
  SELECT @lockfast_deaf, IS_USED_LOCK(CONCAT('lockfast:l:', who)) IS NOT NULL;
END
