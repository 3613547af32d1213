CREATE TABLE IF NOT EXISTS lockfast_store (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  floor BIGINT NOT NULL,
  watched_us BIGINT NOT NULL,
  swept_us BIGINT NOT NULL,
  swept_name VARBINARY(255) NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lockfast_clients (
  client BINARY(6) NOT NULL PRIMARY KEY,
  program VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  pid INT UNSIGNED NOT NULL,
  text VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  seen_us BIGINT NOT NULL,
  watches_us BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lockfast_locks (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  fence BIGINT NOT NULL,
  holder BINARY(16),
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  crowd INT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lockfast_claims (
  name VARBINARY(255) NOT NULL,
  holder BINARY(16) NOT NULL,
  ticket BIGINT NOT NULL,
  mode INT NOT NULL,
  stage TINYINT NOT NULL,
  fence BIGINT NOT NULL,
  ttl_us BIGINT NOT NULL,
  delay_us BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  reason VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (name, holder),
  KEY lockfast_claims_line (name, ticket)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lockfast_mail (
  client BINARY(6) NOT NULL,
  seq BIGINT NOT NULL AUTO_INCREMENT,
  reading_us BIGINT NOT NULL DEFAULT 0,
  sent_us BIGINT NOT NULL,
  body VARBINARY(4096) NOT NULL,
  PRIMARY KEY (client, seq),
  KEY lockfast_mail_seq (seq)
) ENGINE = InnoDB;
INSERT IGNORE INTO lockfast_store (id, version, floor, watched_us, swept_us, swept_name)
VALUES (1, 0, 0, 0, 0, '');
UPDATE lockfast_store SET version = 1;
SET @soon = CAST(UNIX_TIMESTAMP() * 1000000 AS SIGNED) + 600000000;
INSERT INTO lockfast_locks VALUES ('held', 41, REPEAT('h', 16), @soon, 1, 1), ('shared', 41, NULL, 1, 1, 3);
INSERT INTO lockfast_claims VALUES
  ('held', REPEAT('w', 16), 1, 0, 0, 0, 1, 0, 0, @soon, 1, ''),
  ('shared', REPEAT('a', 16), 1, -1, 1, 40, 1, 0, 0, @soon, 1, ''),
  ('shared', REPEAT('b', 16), 2, -1, 1, 41, 1, 0, 0, @soon, 1, ''),
  ('shared', REPEAT('w', 16), 3, 0, 0, 0, 1, 0, 0, @soon, 1, '');
CREATE DEFINER = maker PROCEDURE lockfast_enrol(
  IN who CHAR(12), IN its_program VARCHAR(255), IN its_host VARCHAR(255), IN its_pid INT UNSIGNED,
  IN its_text VARCHAR(128))
  SQL SECURITY DEFINER
  SELECT version, 1 FROM lockfast_store;
