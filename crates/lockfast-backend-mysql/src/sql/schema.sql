-- The tables. All times are microseconds since 1970 by the server's clock; names, holders and
-- clients are bytes, so that they are whole and case counts. One table a paragraph, one column a line.

-- Its row is written last: without it the schema is not whole.
CREATE TABLE IF NOT EXISTS lockfast_store (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  -- The earliest version of Lockfast that the procedures serve.
  serves INT NOT NULL,
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
  -- The client and its secret: whoever knows both is that client.
  who BINARY(16) NOT NULL DEFAULT '',
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
  -- How many rows it has in lockfast_claims; of these wait, share and are passed over.
  crowd INT NOT NULL,
  waiting INT NOT NULL DEFAULT 0,
  sharing INT NOT NULL DEFAULT 0,
  asleep INT NOT NULL DEFAULT 0,
  -- Whether its holder waited for it and was not heard of since.
  offered TINYINT NOT NULL DEFAULT 0,
  -- The last ticket that was drawn; whoever waits has one above that which was served.
  ticket BIGINT NOT NULL DEFAULT 0,
  served BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockfast_claims (
  name VARBINARY(255) NOT NULL,
  holder BINARY(16) NOT NULL,
  client BINARY(6) NOT NULL DEFAULT '',
  ticket BIGINT NOT NULL,
  -- 0 exclusive, -1 shared, otherwise the number of permits.
  mode INT NOT NULL,
  -- 0 waits, 1 has it, 2 had it until an operator took it away, 3 waits but is passed over.
  stage TINYINT NOT NULL,
  offered TINYINT NOT NULL DEFAULT 0,
  fence BIGINT NOT NULL,
  ttl_us BIGINT NOT NULL,
  delay_us BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  reason VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (name, holder),
  -- What a hand-over looks for costs the same however long the line is.
  KEY lockfast_claims_turn (name, stage, ticket),
  KEY lockfast_claims_client (name, stage, client, ticket),
  KEY lockfast_claims_mode (name, mode),
  KEY lockfast_claims_end (name, until_us)
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

CREATE TABLE IF NOT EXISTS lockfast_values (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  -- The id of the write that it comes from.
  version BINARY(16) NOT NULL,
  bytes MEDIUMBLOB NOT NULL,
  -- From then on it is as if there were none, though the row may still be there; NULL for never.
  until_us BIGINT,
  KEY lockfast_values_end (until_us)
) ENGINE = InnoDB;
