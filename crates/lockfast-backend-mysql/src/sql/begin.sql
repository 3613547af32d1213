-- Every change begins here. Only the connection that the client introduced last may make one: it
-- has the client's named lock, which the server takes from a connection only when all that it
-- had under way is done or undone.
--
-- What the parts of a change tell each other is in variables of the session. They are set here, so
-- nothing depends on what they were, and they hold no secret: a caller can read them afterwards.
CREATE PROCEDURE lockfast_begin(IN caller CHAR(32))
  SQL SECURITY INVOKER
BEGIN
  SET @lockfast_who = UNHEX(LEFT(caller, 12)), @lockfast_self = NULL, @lockfast_floor = NULL,
      @lockfast_answers = '', @lockfast_pushes = '', @lockfast_wakes = '', @lockfast_deaf = 0;
  -- A definer with many rights could write on a replica.
  IF @@GLOBAL.read_only THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
  END IF;
  IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
  IF @@SESSION.group_concat_max_len < 16777216 THEN
    SET SESSION group_concat_max_len = 16777216;
  END IF;
  CALL lockfast_clock(@lockfast_now);
  -- What was read before the row of a lock was ours may be out of date, and a session's own
  -- isolation would go on showing it.
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  START TRANSACTION;
  SELECT s.floor, s.watched_us > @lockfast_now INTO @lockfast_floor, @lockfast_watched
    FROM lockfast_store s
    JOIN lockfast_clients c ON c.client = @lockfast_who AND c.who = UNHEX(caller)
   WHERE s.id = 1;
  IF @lockfast_floor IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
END
