-- Every change begins here. Only the connection that the client introduced last may make one: it
-- has the client's named lock, which the server takes from a connection only when all that it
-- had under way is done or undone.
CREATE PROCEDURE lockfast_begin(IN who CHAR(12))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_who = UNHEX(who), @lockfast_self = NULL, @lockfast_floor = NULL,
      @lockfast_answers = '', @lockfast_pushes = '', @lockfast_wakes = '', @lockfast_deaf = 0,
      @lockfast_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  -- A definer with many rights could write on a replica.
  IF @@GLOBAL.read_only THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
  END IF;
  IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', who)) <=> CONNECTION_ID() THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
  START TRANSACTION;
  SELECT floor, watched_us > @lockfast_now INTO @lockfast_floor, @lockfast_watched
    FROM lockfast_store WHERE id = 1;
END
