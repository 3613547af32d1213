-- Passes on the client's mail: what there is, and then whatever comes within a while, each time in
-- one row. What was read is deleted by the next call, which names it: a row that was lost is given
-- again.
--
-- It waits for a named lock that the client's other connection has: unlike SLEEP, of which all
-- share one mutex in the server, that can be interrupted by many at once. An interrupted DO is
-- over without an error on MariaDB, so that being woken costs no call; MySQL ends the whole call
-- instead and is asked again. Mail that is not worth a wake-up is found once a second.
--
-- Whatever else is interrupted may have done nothing and not say so (seen on 10.11: a DELETE that
-- found no rows), so nothing here relies on the statement before it.
CREATE PROCEDURE lockfast_listen(IN caller CHAR(32), IN was_read BIGINT, IN seconds INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE reading BIGINT DEFAULT was_read;
    DECLARE turns_left INT DEFAULT seconds;
    DECLARE mails LONGBLOB;
    DECLARE me BINARY(6) DEFAULT UNHEX(LEFT(caller, 12));
    -- Only one of the two can be interrupted.
    IF NOT EXISTS (SELECT 1 FROM lockfast_clients c WHERE c.client = me AND c.who = UNHEX(caller))
       AND NOT EXISTS (SELECT 1 FROM lockfast_clients c
                        WHERE c.client = me AND c.who = UNHEX(caller)) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    IF @@SESSION.group_concat_max_len < 16777216 THEN
      SET SESSION group_concat_max_len = 16777216;
    END IF;
    CALL lockfast_own('l', caller);
    DELETE FROM lockfast_mail WHERE client = me AND reading_us BETWEEN 1 AND was_read;
    listening: LOOP
      -- Whether what was read after that has arrived is not known.
      UPDATE lockfast_mail SET reading_us = 0 WHERE client = me AND reading_us > reading;
      -- Rises whatever the clock does.
      SET reading = GREATEST(reading + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
      UPDATE lockfast_mail SET reading_us = reading WHERE client = me AND reading_us = 0
       ORDER BY seq LIMIT 1000;
      SET mails = NULL;
      SELECT GROUP_CONCAT(m.body ORDER BY m.seq SEPARATOR '\n') INTO mails FROM lockfast_mail m
       WHERE m.client = me AND m.reading_us = reading;
      IF mails IS NOT NULL THEN
        SELECT mails, reading;
      ELSE
        SET reading = reading - 1;
      END IF;
      -- A session that does not commit by itself would go on seeing what was.
      COMMIT AND NO CHAIN NO RELEASE;
      IF EXISTS (SELECT 1 FROM lockfast_mail m
                  WHERE m.client = me AND (m.reading_us = 0 OR m.reading_us > reading)) THEN
        ITERATE listening;
      ELSEIF turns_left <= 0 THEN
        LEAVE listening;
      END IF;
      COMMIT AND NO CHAIN NO RELEASE;
      SET turns_left = turns_left - 1;
      DO GET_LOCK(CONCAT('lockfast:w:', caller), 1);
      IF IS_USED_LOCK(CONCAT('lockfast:w:', caller)) <=> CONNECTION_ID() THEN
        -- The other connection is not there, so there is nothing to wait for.
        DO RELEASE_LOCK(CONCAT('lockfast:w:', caller));
        LEAVE listening;
      END IF;
    END LOOP;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
