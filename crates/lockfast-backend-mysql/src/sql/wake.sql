-- Wakes a client whose connection sleeps in lockfast_listen. The named lock says which connection
-- that is; without one there is nobody to be woken.
CREATE PROCEDURE lockfast_wake(IN whom CHAR(12))
  SQL SECURITY DEFINER
BEGIN
  DECLARE listener BIGINT DEFAULT IS_USED_LOCK(CONCAT('lockfast:l:', whom));
  -- 1094: it has just gone. Otherwise it may not be woken and must find out by itself.
  DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET @lockfast_deaf = 1;
  IF listener IS NOT NULL THEN
    KILL QUERY listener;
  END IF;
END
