-- The tables. All times are microseconds since 1970 by the server's clock; names, holders and
-- clients are bytes, so that they are whole and case counts. One statement a paragraph.

CREATE TABLE IF NOT EXISTS lockfast_store (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  -- No row that was deleted had a fence above it.
  floor BIGINT NOT NULL,
  -- Until when somebody wants events.
  watched_us BIGINT NOT NULL,
  swept_us BIGINT NOT NULL,
  -- Where the next sweep goes on.
  swept_name VARBINARY(255) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockfast_clients (
  client BINARY(6) NOT NULL PRIMARY KEY,
  program VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  pid INT UNSIGNED NOT NULL,
  text VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  seen_us BIGINT NOT NULL,
  -- Until when it wants events.
  watches_us BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockfast_locks (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  -- That of the last grant.
  fence BIGINT NOT NULL,
  -- Who has it alone.
  holder BINARY(16),
  -- When the store lets go of it: after ttl and lock-delay.
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  -- How many rows it has in lockfast_claims.
  crowd INT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockfast_claims (
  name VARBINARY(255) NOT NULL,
  holder BINARY(16) NOT NULL,
  ticket BIGINT NOT NULL,
  -- 0 exclusive, -1 shared, otherwise the number of permits.
  mode INT NOT NULL,
  -- 0 waits, 1 has it, 2 had it until an operator took it away.
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
  -- When it was read, if it was.
  reading_us BIGINT NOT NULL DEFAULT 0,
  sent_us BIGINT NOT NULL,
  body VARBINARY(4096) NOT NULL,
  PRIMARY KEY (client, seq),
  KEY lockfast_mail_seq (seq)
) ENGINE = InnoDB;

INSERT IGNORE INTO lockfast_store (id, version, floor, watched_us, swept_us, swept_name)
VALUES (1, 0, 0, 0, 0, '');
