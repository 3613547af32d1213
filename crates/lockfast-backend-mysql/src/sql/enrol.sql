-- A client introduces its connection, which has a named lock for as long as it is open: by it the
-- others see that the client lives, and from then on nothing that an earlier connection of the
-- client has sent takes effect.
CREATE PROCEDURE lockfast_enrol(
  IN who CHAR(12), IN its_program VARCHAR(255) CHARACTER SET utf8mb4,
  IN its_host VARCHAR(255) CHARACTER SET utf8mb4, IN its_pid INT UNSIGNED,
  IN its_text VARCHAR(128) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  -- Waits until whatever an earlier connection has under way is done or undone.
  CALL lockfast_own(CONCAT('lockfast:a:', who));
  IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', who)) <=> CONNECTION_ID() THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
  -- What the client's other connection waits for.
  CALL lockfast_own(CONCAT('lockfast:w:', who));
  INSERT INTO lockfast_clients (client, program, host, pid, text, seen_us, watches_us)
  VALUES (UNHEX(who), its_program, its_host, its_pid, its_text, now_us, 0)
  ON DUPLICATE KEY UPDATE seen_us = now_us;
  SELECT version, now_us FROM lockfast_store WHERE id = 1;
END
