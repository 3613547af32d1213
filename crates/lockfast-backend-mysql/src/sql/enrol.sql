-- A client introduces its connection, which has a named lock for as long as it is open: by it the
-- others see that the client lives, and from then on nothing that an earlier connection of the
-- client has sent takes effect. Whoever calls says who it is by 32 digits in capitals: the first
-- twelve are the client, which others may know, and the rest is its secret.
CREATE PROCEDURE lockfast_enrol(
  IN caller CHAR(32), IN its_program VARCHAR(255) CHARACTER SET utf8mb4,
  IN its_host VARCHAR(255) CHARACTER SET utf8mb4, IN its_pid INT UNSIGNED,
  IN its_text VARCHAR(128) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  enrol: BEGIN
    DECLARE now_us BIGINT;
    DECLARE known BINARY(16);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    IF CHAR_LENGTH(caller) = 12 THEN
      -- Somebody without a secret only asks for the version, and nothing is written down.
      SELECT s.version, now_us, s.serves FROM lockfast_store s WHERE s.id = 1;
      LEAVE enrol;
    END IF;
    IF NOT COALESCE(CHAR_LENGTH(caller) = 32 AND HEX(UNHEX(caller)) = caller, 0) THEN
      SIGNAL SQLSTATE '45000'
         SET MESSAGE_TEXT = 'lockfast: a client is 12 digits and a secret of 20, in capitals';
    END IF;
    INSERT INTO lockfast_clients (client, who, program, host, pid, text, seen_us, watches_us)
    VALUES (UNHEX(LEFT(caller, 12)), UNHEX(caller), its_program, its_host, its_pid, its_text,
            now_us, 0)
    ON DUPLICATE KEY UPDATE seen_us = now_us;
    SELECT c.who INTO known FROM lockfast_clients c WHERE c.client = UNHEX(LEFT(caller, 12));
    COMMIT AND NO CHAIN NO RELEASE;
    IF NOT known <=> UNHEX(caller) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: another one is this client';
    END IF;
    -- Waits until whatever an earlier connection has under way is done or undone.
    CALL lockfast_own('a', caller);
    IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    -- What the client's other connection waits for.
    CALL lockfast_own('w', caller);
    SELECT s.version, now_us, s.serves FROM lockfast_store s WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
