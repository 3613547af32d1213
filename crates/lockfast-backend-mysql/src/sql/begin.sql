-- Every change begins here: only the client's present connection may make one.
CREATE PROCEDURE lockfast_begin(IN who CHAR(12), IN its_link BIGINT)
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_link = NULL, @lockfast_who = UNHEX(who), @lockfast_self = NULL,
      @lockfast_answers = '', @lockfast_pushes = '', @lockfast_wakes = '', @lockfast_deaf = 0;
  SET @lockfast_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  -- A definer with many rights could write on a replica.
  IF @@GLOBAL.read_only THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
  END IF;
  START TRANSACTION;
  SELECT c.link, s.floor, s.watched_us > @lockfast_now
    INTO @lockfast_link, @lockfast_floor, @lockfast_watched
    FROM lockfast_clients c JOIN lockfast_store s ON s.id = 1
   WHERE c.client = @lockfast_who LOCK IN SHARE MODE;
  IF NOT @lockfast_link <=> its_link THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
END
