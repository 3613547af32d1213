-- What is stored. All times are microseconds since 1970 by the server's clock. A holder is the
-- 16 bytes of its id; its first 6 are the client's.

-- One row for the whole store.
CREATE TABLE {schema}.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  -- No fence of a lock whose row was deleted is higher.
  floor bigint NOT NULL DEFAULT 0,
  -- Until when somebody wants to hear of events.
  watched_us bigint NOT NULL DEFAULT 0,
  -- The channel that events are sent on. Whoever may connect may also listen and send, so its name is
  -- a secret that only functions tell.
  events text NOT NULL DEFAULT {secret_channel},
  -- Here and below: no function stores anything else, and by hand it cannot be done by mistake.
  CONSTRAINT store_possible CHECK (floor >= 0)
);
INSERT INTO {schema}.store DEFAULT VALUES;

-- The processes that use the store.
CREATE TABLE {schema}.clients (
  client bytea PRIMARY KEY,
  -- Its present connection: what arrives through one that was given up is refused.
  link bigint NOT NULL,
  -- Whether it has no connection that listens, and so reads its mail.
  by_mail boolean NOT NULL,
  program text NOT NULL,
  host text NOT NULL,
  pid bigint NOT NULL,
  label text,
  seen_us bigint NOT NULL,
  watches_us bigint NOT NULL DEFAULT 0,
  -- What the store's row says of the same name, so that one row tells whoever asks often.
  watched_us bigint NOT NULL DEFAULT 0,
  -- The channel that it listens on, a secret like the above, and the key of the advisory lock that
  -- it has for as long as it does, which is another one each time. NULL while it reads its mail and never
  -- listened.
  channel text,
  presence bigint
);

-- One row for each lock, kept for a while when it is free. Who holds it alone stands here, so
-- that the most frequent case changes one row and no index.
CREATE TABLE {schema}.locks (
  name text COLLATE "C" PRIMARY KEY,
  -- The highest that was given for this lock.
  fence bigint NOT NULL,
  holder uuid,
  -- The end of the lease with its lock-delay; for a free lock, when it became so.
  until_us bigint NOT NULL,
  since_us bigint NOT NULL,
  -- Whether it was handed over and its holder has not been heard of since.
  offer boolean NOT NULL DEFAULT false,
  -- How many rows it has in claims.
  crowd integer NOT NULL DEFAULT 0,
  -- How the client to which it was handed over calls the claim, and how long that is good.
  call bigint NOT NULL DEFAULT 0,
  lasts_us bigint NOT NULL DEFAULT 0,
  -- When to look again whether those who were passed over are still there; 0 if none were.
  passed_us bigint NOT NULL DEFAULT 0,
  CONSTRAINT locks_possible CHECK (fence >= 0 AND crowd >= 0)
) WITH (fillfactor = 60);

-- Who waits, who shares a lock with others, and from whom one was taken away. Only touched by
-- whoever has locked the lock's row.
CREATE TABLE {schema}.claims (
  name text COLLATE "C" NOT NULL,
  holder uuid NOT NULL,
  ticket bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  -- 0 waiting, 1 granted (to share), 2 revoked; -1 waiting, but passed over.
  stage smallint NOT NULL,
  -- 0 exclusive, -1 shared, n: one of n permits.
  mode integer NOT NULL,
  -- How the client calls it.
  call bigint NOT NULL,
  ttl_us bigint NOT NULL,
  delay_us bigint NOT NULL,
  floor bigint,
  -- When a waiting claim was last heard of.
  seen_us bigint NOT NULL,
  fence bigint,
  until_us bigint,
  since_us bigint,
  offer boolean NOT NULL DEFAULT false,
  reason text,
  PRIMARY KEY (name, holder),
  CONSTRAINT claims_possible CHECK (stage BETWEEN -1 AND 2 AND mode >= -1)
);
CREATE INDEX claims_in_order ON {schema}.claims (name, stage, ticket);
-- In which mode a name is in use, however many wait.
CREATE INDEX claims_in_mode ON {schema}.claims (name) WHERE mode <> 0 AND stage < 2;

-- Messages to clients that do not listen.
CREATE TABLE {schema}.mail (
  seq bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  client bytea NOT NULL,
  message text NOT NULL,
  sent_us bigint NOT NULL
);
CREATE INDEX mail_of_client ON {schema}.mail (client, seq);
