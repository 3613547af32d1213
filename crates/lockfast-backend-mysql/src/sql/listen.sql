-- Passes on the client's mail: what there is, and then whatever comes within a while, each time in
-- one row. What was read is deleted by the next call, which names it: a row that was lost is given
-- again.
--
-- It waits for a named lock that the client's other connection has: unlike SLEEP, of which all
-- share one mutex in the server, that can be interrupted by many at once. An interrupted DO is
-- over without an error on MariaDB, so that being woken costs no call; a server that ends the
-- whole call instead is asked again. Mail that is not worth a wake-up is found once a second.
--
-- Whatever else is interrupted may have done nothing and not say so (seen on 10.11: a DELETE that
-- found no rows), so nothing here relies on the statement before it.
CREATE PROCEDURE lockfast_listen(IN who CHAR(12), IN was_read BIGINT, IN seconds INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE reading BIGINT DEFAULT was_read;
  DECLARE turns_left INT DEFAULT seconds;
  DECLARE mails LONGBLOB;
  CALL lockfast_own(CONCAT('lockfast:l:', who));
  DELETE FROM lockfast_mail WHERE client = UNHEX(who) AND reading_us BETWEEN 1 AND was_read;
  listening: LOOP
    -- Whether what was read after that has arrived is not known.
    UPDATE lockfast_mail SET reading_us = 0 WHERE client = UNHEX(who) AND reading_us > reading;
    -- Rises whatever the clock does.
    SET reading = GREATEST(reading + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
    UPDATE lockfast_mail SET reading_us = reading WHERE client = UNHEX(who) AND reading_us = 0
     ORDER BY seq LIMIT 1000;
    SET mails = NULL;
    SELECT GROUP_CONCAT(body ORDER BY seq SEPARATOR '\n') INTO mails FROM lockfast_mail
     WHERE client = UNHEX(who) AND reading_us = reading;
    IF mails IS NOT NULL THEN
      SELECT mails, reading;
    ELSE
      SET reading = reading - 1;
    END IF;
    IF EXISTS (SELECT 1 FROM lockfast_mail
                WHERE client = UNHEX(who) AND (reading_us = 0 OR reading_us > reading)) THEN
      ITERATE listening;
    ELSEIF turns_left <= 0 THEN
      LEAVE listening;
    END IF;
    SET turns_left = turns_left - 1;
    DO GET_LOCK(CONCAT('lockfast:w:', who), 1);
    IF IS_USED_LOCK(CONCAT('lockfast:w:', who)) <=> CONNECTION_ID() THEN
      -- The other connection is not there, so there is nothing to wait for.
      DO RELEASE_LOCK(CONCAT('lockfast:w:', who));
      LEAVE listening;
    END IF;
  END LOOP;
END
