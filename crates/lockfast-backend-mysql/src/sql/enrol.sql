-- A client introduces its connection. From then on, what its earlier connections sent and has
-- not arrived is refused. The connection has a named lock for as long as it is open, by which the
-- others see that the client lives.
CREATE PROCEDURE lockfast_enrol(
  IN who CHAR(12), IN new_link BIGINT, IN its_program VARCHAR(255) CHARACTER SET utf8mb4,
  IN its_host VARCHAR(255) CHARACTER SET utf8mb4, IN its_pid INT UNSIGNED,
  IN its_text VARCHAR(128) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  -- Waits for whatever an earlier connection has under way.
  INSERT INTO lockfast_clients (client, link, program, host, pid, text, seen_us, watches_us)
  VALUES (UNHEX(who), new_link, its_program, its_host, its_pid, its_text, now_us, 0)
  ON DUPLICATE KEY UPDATE link = new_link, seen_us = now_us;
  CALL lockfast_own(CONCAT('lockfast:a:', who));
  -- What the client's other connection waits for.
  CALL lockfast_own(CONCAT('lockfast:w:', who));
  SELECT version, now_us FROM lockfast_store WHERE id = 1;
END
