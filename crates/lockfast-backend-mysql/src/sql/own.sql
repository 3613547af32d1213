-- Takes one of our named locks for this connection, from an earlier one of the same client if need
-- be. Its name holds the client's secret, so an earlier one is the same client's.
CREATE PROCEDURE lockfast_own(IN letter CHAR(1), IN caller CHAR(32))
  SQL SECURITY INVOKER
BEGIN
  DECLARE lock_name VARCHAR(64) CHARACTER SET utf8mb4
    DEFAULT CONCAT('lockfast:', letter, ':', caller);
  DECLARE earlier BIGINT DEFAULT IS_USED_LOCK(lock_name);
  -- It may have ended by itself in between.
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  IF earlier IS NULL OR earlier <> CONNECTION_ID() THEN
    IF earlier IS NOT NULL THEN
      KILL CONNECTION earlier;
    END IF;
    DO GET_LOCK(lock_name, 2);
  END IF;
END
