-- A client wants events for so long, a minute at most.
CREATE PROCEDURE lockfast_watch(IN caller CHAR(32), IN lasts_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE now_us, until_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    SET until_us = now_us + LEAST(GREATEST(lasts_us, 0), 60000000);
    IF NOT EXISTS (SELECT 1 FROM lockfast_clients c
                    WHERE c.client = UNHEX(LEFT(caller, 12)) AND c.who = UNHEX(caller)) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    UPDATE lockfast_clients c SET c.watches_us = until_us WHERE c.client = UNHEX(LEFT(caller, 12));
    UPDATE lockfast_store s SET s.watched_us = GREATEST(s.watched_us, until_us) WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
