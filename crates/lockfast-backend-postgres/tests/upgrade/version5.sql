-- The schema as version 5 made it, without its comments.
CREATE SCHEMA lockfast;
CREATE TABLE lockfast.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  floor bigint NOT NULL DEFAULT 0,
  watched_us bigint NOT NULL DEFAULT 0,
  events text NOT NULL DEFAULT 'lockfast:' || substr(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 1, 32)
);
INSERT INTO lockfast.store DEFAULT VALUES;
CREATE TABLE lockfast.clients (
  client bytea PRIMARY KEY,
  link bigint NOT NULL,
  by_mail boolean NOT NULL,
  program text NOT NULL,
  host text NOT NULL,
  pid bigint NOT NULL,
  label text,
  seen_us bigint NOT NULL,
  watches_us bigint NOT NULL DEFAULT 0,
  watched_us bigint NOT NULL DEFAULT 0,
  channel text,
  presence bigint
);
CREATE TABLE lockfast.locks (
  name text COLLATE "C" PRIMARY KEY,
  fence bigint NOT NULL,
  holder uuid,
  until_us bigint NOT NULL,
  since_us bigint NOT NULL,
  offer boolean NOT NULL DEFAULT false,
  crowd integer NOT NULL DEFAULT 0,
  call bigint NOT NULL DEFAULT 0,
  lasts_us bigint NOT NULL DEFAULT 0,
  passed_us bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 60);
CREATE TABLE lockfast.claims (
  name text COLLATE "C" NOT NULL,
  holder uuid NOT NULL,
  ticket bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  stage smallint NOT NULL,
  mode integer NOT NULL,
  call bigint NOT NULL,
  ttl_us bigint NOT NULL,
  delay_us bigint NOT NULL,
  floor bigint,
  seen_us bigint NOT NULL,
  fence bigint,
  until_us bigint,
  since_us bigint,
  offer boolean NOT NULL DEFAULT false,
  reason text,
  PRIMARY KEY (name, holder)
);
CREATE INDEX claims_in_order ON lockfast.claims (name, stage, ticket);
CREATE INDEX claims_in_mode ON lockfast.claims (name) WHERE mode <> 0 AND stage < 2;
CREATE TABLE lockfast.mail (
  seq bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  client bytea NOT NULL,
  message text NOT NULL,
  sent_us bigint NOT NULL
);
CREATE INDEX mail_of_client ON lockfast.mail (client, seq);
ALTER TABLE lockfast.clients ADD COLUMN IF NOT EXISTS watched_us bigint NOT NULL DEFAULT 0;
UPDATE lockfast.clients c SET watched_us = s.watched_us FROM lockfast.store s
  WHERE c.watched_us <> s.watched_us;
ALTER TABLE lockfast.clients ADD COLUMN IF NOT EXISTS channel text;
ALTER TABLE lockfast.clients ADD COLUMN IF NOT EXISTS presence bigint;
ALTER TABLE lockfast.store ADD COLUMN IF NOT EXISTS events text NOT NULL DEFAULT 'lockfast:' || substr(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 1, 32);
ALTER TABLE lockfast.locks ADD COLUMN IF NOT EXISTS call bigint NOT NULL DEFAULT 0;
ALTER TABLE lockfast.locks ADD COLUMN IF NOT EXISTS lasts_us bigint NOT NULL DEFAULT 0;
ALTER TABLE lockfast.locks ADD COLUMN IF NOT EXISTS passed_us bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS claims_in_mode ON lockfast.claims (name) WHERE mode <> 0 AND stage < 2;
ALTER TABLE lockfast.store DROP CONSTRAINT IF EXISTS store_possible,
  ADD CONSTRAINT store_possible CHECK (floor >= 0) NOT VALID;
ALTER TABLE lockfast.locks DROP CONSTRAINT IF EXISTS locks_possible,
  ADD CONSTRAINT locks_possible CHECK (fence >= 0 AND crowd >= 0) NOT VALID;
ALTER TABLE lockfast.claims DROP CONSTRAINT IF EXISTS claims_possible,
  ADD CONSTRAINT claims_possible CHECK (stage BETWEEN -1 AND 2 AND mode >= -1) NOT VALID;
DO $do$
DECLARE
  inner_one regprocedure;
BEGIN
  FOR inner_one IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'lockfast'::regnamespace
    AND p.proname IN ('note', 'tell', 'is_there', 'settle', 'drop_waiting', 'drop_ended',
      'drop_silent', 'blocked_us', 'lock_row', 'acquire', 'enter', 'release', 'renew', 'refresh')
  LOOP
    EXECUTE format('DROP FUNCTION %s', inner_one);
  END LOOP;
END $do$;
CREATE OR REPLACE FUNCTION lockfast.clock() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;
CREATE OR REPLACE FUNCTION lockfast.beginning() RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint $$;
CREATE OR REPLACE FUNCTION lockfast.client_of(holder uuid) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT substring(uuid_send(holder) FROM 1 FOR 6) $$;
CREATE OR REPLACE FUNCTION lockfast.first_of(client bytea) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT (encode(client, 'hex') || repeat('0', 20))::uuid $$;
CREATE OR REPLACE FUNCTION lockfast.last_of(client bytea) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT (encode(client, 'hex') || repeat('f', 20))::uuid $$;
CREATE OR REPLACE FUNCTION lockfast.key_of(client bytea) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$ SELECT (get_byte(client, 0) << 24) | (get_byte(client, 1) << 16)
  | (get_byte(client, 2) << 8) | get_byte(client, 3) $$;
CREATE OR REPLACE FUNCTION lockfast.tell(whom lockfast.clients, message text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF whom.by_mail THEN
    INSERT INTO lockfast.mail (client, message, sent_us)
      VALUES (whom.client, tell.message, lockfast.clock());
    RETURN true;
  END IF;
  RETURN whom.client IS NOT NULL AND pg_notify(
    coalesce(whom.channel, 'lockfast:' || encode(whom.client, 'hex')), message)::text IS NOT NULL;
END $$;
CREATE OR REPLACE FUNCTION lockfast.is_there(whom lockfast.clients, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE
    WHEN whom.client IS NULL THEN false
    WHEN whom.by_mail THEN greatest(whom.seen_us, asked_us) > now_us - 2000000
    WHEN whom.presence IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(whom.presence)
    ELSE NOT pg_try_advisory_xact_lock(1279675137, lockfast.key_of(whom.client))
  END;
END $$;
CREATE OR REPLACE FUNCTION lockfast.note(
  kind text, lock_name text, fence bigint, holder uuid, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  message text;
  is_watched boolean;
  events text;
BEGIN
  SELECT s.watched_us > now_us, s.events INTO is_watched, events FROM lockfast.store s;
  IF NOT is_watched THEN
    RETURN false;
  END IF;
  SELECT concat_ws(E'\t', kind, now_us, coalesce(fence, 0), lock_name,
      coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, ''),
      nextval(pg_get_serial_sequence('lockfast.mail', 'seq')))
    INTO message
    FROM (VALUES (lockfast.client_of(holder))) AS wanted (client)
    LEFT JOIN lockfast.clients c ON c.client = wanted.client;
  PERFORM pg_notify(events, message);
  INSERT INTO lockfast.mail (client, message, sent_us)
    SELECT c.client, 'E' || E'\t' || message, now_us FROM lockfast.clients c
    WHERE c.by_mail AND c.watches_us > now_us;
  RETURN true;
END $$;
CREATE OR REPLACE FUNCTION lockfast.push(owed text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  lock_name text;
  l lockfast.locks;
  c lockfast.claims;
  whose lockfast.clients;
  now_us bigint := lockfast.clock();
  is_told boolean := false;
BEGIN
  FOREACH lock_name IN ARRAY owed LOOP
    SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name;
    IF l.offer AND l.until_us > now_us THEN
      SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(l.holder);
      is_told := lockfast.tell(whose,
          concat_ws(' ', 'G', l.call, l.fence, l.since_us, l.lasts_us))
        AND l.crowd > 0
        AND lockfast.tell_other(lock_name, whose.client, l.until_us - now_us, now_us);
    ELSIF l.holder IS NULL AND l.crowd > 0 THEN
      FOR c IN SELECT * FROM lockfast.claims g
        WHERE g.name = lock_name AND g.stage = 1 AND g.offer AND g.until_us > now_us
      LOOP
        SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(c.holder);
        is_told := lockfast.tell(whose, concat_ws(' ', 'G', c.call, c.fence, c.since_us,
          least(c.ttl_us, 1500000)));
      END LOOP;
      is_told := whose.client IS NOT NULL
        AND lockfast.tell_other(lock_name, whose.client, 1500000, now_us);
    END IF;
  END LOOP;
  RETURN is_told;
END $$;
CREATE OR REPLACE FUNCTION lockfast.tell_other(
  lock_name text, but bytea, after_us bigint, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c lockfast.claims;
  whose lockfast.clients;
  last uuid;
  has_turned boolean := false;
BEGIN
  SELECT * INTO c FROM lockfast.claims w WHERE w.name = lock_name AND w.stage = 0
    ORDER BY w.ticket LIMIT 1;
  IF c.holder IS NULL THEN
    RETURN false;
  END IF;
  FOR tries IN 1 .. 8 LOOP
    IF c.name = lock_name THEN
      SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(c.holder);
      IF c.stage = 0 AND whose.client IS DISTINCT FROM but
        AND lockfast.is_there(whose, c.seen_us, now_us)
      THEN
        RETURN lockfast.tell(whose, concat_ws(' ', 'H', c.call, after_us));
      END IF;
      last := lockfast.last_of(lockfast.client_of(c.holder));
    ELSIF has_turned THEN
      RETURN false;
    ELSE
      has_turned := true;
      last := '00000000-0000-0000-0000-000000000000';
    END IF;
    SELECT * INTO c FROM lockfast.claims w WHERE (w.name, w.holder) > (lock_name, last)
      ORDER BY w.name, w.holder LIMIT 1;
    c.name := coalesce(c.name, '');
  END LOOP;
  RETURN false;
END $$;
CREATE OR REPLACE FUNCTION lockfast.push_4(owed text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  setting text := set_config('synchronous_commit', 'off', true);
BEGIN
  RETURN lockfast.push(owed);
END $$;
CREATE OR REPLACE FUNCTION lockfast.settle(
  INOUT l lockfast.locks, now_us bigint, me uuid, how integer, is_alone boolean, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c lockfast.claims;
  whose lockfast.clients;
  ahead bigint := 0;
  has_ended boolean;
  is_told boolean;
  number bigint;
  lasts_us bigint;
  is_mine boolean;
BEGIN
  owes := false;
  IF l.holder IS NOT NULL AND l.until_us <= now_us THEN
    is_told := lockfast.note('e', l.name, l.fence, l.holder, now_us);
    IF l.offer AND l.crowd > 0 THEN
      l := lockfast.pass_over(l, lockfast.client_of(l.holder), now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    is_alone := true;
  END IF;
  IF l.crowd > 0 THEN
    IF l.passed_us > 0 AND l.passed_us <= now_us THEN
      l := lockfast.drop_gone(l, now_us);
    END IF;
    IF NOT is_alone THEN
      SELECT count(*) FILTER (WHERE g.stage = 1), bool_or(g.until_us <= now_us)
        INTO ahead, has_ended FROM lockfast.claims g WHERE g.name = l.name AND g.stage > 0;
    END IF;
    IF has_ended THEN
      l := lockfast.drop_ended(l, now_us);
      ahead := (SELECT count(*) FROM lockfast.claims g WHERE g.name = l.name AND g.stage = 1);
    END IF;
    WHILE l.holder IS NULL LOOP
      SELECT * INTO c FROM lockfast.claims w
        WHERE w.name = l.name AND w.stage = 0 ORDER BY w.ticket LIMIT 1;
      number := greatest(l.fence + 1, now_us, c.floor + 1);
      EXIT WHEN c.holder IS NULL OR (c.mode = 0 AND ahead > 0) OR (c.mode > 0 AND ahead >= c.mode)
        OR number >= 9007199254740992;
      is_mine := me IS NOT NULL AND c.holder = me AND c.mode = how;
      SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(c.holder);
      IF NOT is_mine AND NOT lockfast.is_there(whose, c.seen_us, now_us) THEN
        l := lockfast.pass_over(l, lockfast.client_of(c.holder), now_us);
        CONTINUE;
      END IF;
      lasts_us := CASE WHEN is_mine THEN c.ttl_us ELSE least(c.ttl_us, 1500000) END;
      l.fence := number;
      IF c.mode = 0 THEN
        DELETE FROM lockfast.claims d WHERE d.name = c.name AND d.holder = c.holder;
        l.crowd := l.crowd - 1;
        l.holder := c.holder;
        l.until_us := now_us + lasts_us + c.delay_us;
        l.since_us := now_us;
        l.offer := NOT is_mine;
        l.call := c.call;
        l.lasts_us := lasts_us;
      ELSE
        UPDATE lockfast.claims g SET stage = 1, fence = number, since_us = now_us,
          until_us = now_us + lasts_us + c.delay_us, offer = NOT is_mine
          WHERE g.name = c.name AND g.holder = c.holder;
        ahead := ahead + 1;
      END IF;
      IF coalesce(whose.watched_us > now_us, true) THEN
        is_told := lockfast.note('g', l.name, number, c.holder, now_us);
      END IF;
      owes := owes OR NOT is_mine;
    END LOOP;
  END IF;
  UPDATE lockfast.locks k SET fence = l.fence, holder = l.holder, until_us = l.until_us,
    since_us = l.since_us, offer = l.offer, crowd = l.crowd, call = l.call, lasts_us = l.lasts_us,
    passed_us = l.passed_us
    WHERE k.name = l.name;
END $$;
CREATE OR REPLACE FUNCTION lockfast.drop_ended(INOUT l lockfast.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c lockfast.claims;
  is_told boolean;
BEGIN
  FOR c IN DELETE FROM lockfast.claims d
    WHERE d.name = l.name AND d.stage > 0 AND d.until_us <= now_us RETURNING *
  LOOP
    l.crowd := l.crowd - 1;
    IF c.stage = 1 THEN
      is_told := lockfast.note('e', l.name, c.fence, c.holder, now_us);
      IF c.offer THEN
        l := lockfast.pass_over(l, lockfast.client_of(c.holder), now_us);
      END IF;
    END IF;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.pass_over(INOUT l lockfast.locks, silent bytea, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  whose lockfast.clients;
  first_call bigint;
  is_told boolean;
BEGIN
  WITH passed AS (
    UPDATE lockfast.claims p SET stage = -1 WHERE p.name = l.name AND p.stage + 0 = 0
      AND p.holder BETWEEN lockfast.first_of(silent) AND lockfast.last_of(silent)
      RETURNING p.call
  )
  SELECT min(p.call) INTO first_call FROM passed p;
  IF first_call IS NULL THEN
    RETURN;
  END IF;
  IF l.passed_us = 0 THEN
    l.passed_us := now_us + 20000000;
  END IF;
  SELECT * INTO whose FROM lockfast.clients w WHERE w.client = silent;
  is_told := lockfast.tell(whose, concat_ws(' ', 'H', first_call, 0));
END $$;
CREATE OR REPLACE FUNCTION lockfast.welcome(INOUT l lockfast.locks, me uuid, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  client bytea := lockfast.client_of(me);
BEGIN
  UPDATE lockfast.claims p SET stage = 0, seen_us = now_us WHERE p.name = l.name AND p.stage = -1
    AND p.holder BETWEEN lockfast.first_of(client) AND lockfast.last_of(client);
  IF FOUND AND NOT EXISTS (SELECT FROM lockfast.claims p WHERE p.name = l.name AND p.stage = -1)
  THEN
    l.passed_us := 0;
    UPDATE lockfast.locks k SET passed_us = 0 WHERE k.name = l.name;
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.drop_gone(INOUT l lockfast.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone bytea;
  left_by uuid;
  is_told boolean;
BEGIN
  FOR gone IN
    SELECT q.client FROM (
        SELECT lockfast.client_of(p.holder) AS client, max(p.seen_us) AS seen_us
          FROM lockfast.claims p WHERE p.name = l.name AND p.stage = -1 GROUP BY 1
      ) q LEFT JOIN lockfast.clients c ON c.client = q.client
      WHERE NOT lockfast.is_there(c, q.seen_us, now_us)
  LOOP
    FOR left_by IN DELETE FROM lockfast.claims d WHERE d.name = l.name AND d.stage = -1
      AND d.holder BETWEEN lockfast.first_of(gone) AND lockfast.last_of(gone) RETURNING d.holder
    LOOP
      l.crowd := l.crowd - 1;
      is_told := lockfast.note('a', l.name, NULL, left_by, now_us);
    END LOOP;
  END LOOP;
  l.passed_us := CASE
    WHEN EXISTS (SELECT FROM lockfast.claims p WHERE p.name = l.name AND p.stage = -1)
    THEN now_us + 20000000 ELSE 0 END;
END $$;
CREATE OR REPLACE FUNCTION lockfast.blocked_us(l lockfast.locks, now_us bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF l.holder IS NOT NULL THEN
    RETURN greatest(l.until_us - now_us, 0);
  END IF;
  RETURN (SELECT greatest(min(g.until_us) - now_us, 0) FROM lockfast.claims g
    WHERE g.name = l.name AND g.stage = 1);
END $$;
CREATE OR REPLACE FUNCTION lockfast.lock_row(lock_name text, OUT l lockfast.locks)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  LOOP
    SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
    EXIT WHEN l.fence > 0;
    IF l.name IS NULL THEN
      INSERT INTO lockfast.locks (name, fence, until_us, since_us) VALUES (lock_name, 0, 0, 0)
        ON CONFLICT DO NOTHING;
      CONTINUE WHEN NOT FOUND;
    END IF;
    UPDATE lockfast.locks k SET fence = greatest(s.floor, 1) FROM lockfast.store s
      WHERE k.name = lock_name;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.view(lock_name text, now_us bigint) RETURNS text
LANGUAGE sql VOLATILE AS $$
  SELECT concat_ws(E'\n',
    (SELECT coalesce(sum(w.number), 0) FROM (
        SELECT lockfast.client_of(k.holder) AS client, count(*) AS number, max(k.seen_us) AS seen_us
          FROM lockfast.claims k WHERE k.name = lock_name AND k.stage <= 0 GROUP BY 1
      ) w JOIN lockfast.clients c ON c.client = w.client
      WHERE lockfast.is_there(c, w.seen_us, now_us))::text,
    (SELECT string_agg(concat_ws(E'\t', h.mode, h.fence, h.since_us, h.until_us - now_us,
        coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, '')),
        E'\n' ORDER BY h.fence)
      FROM (
        SELECT 0 AS mode, l.fence, l.since_us, l.until_us, l.holder FROM lockfast.locks l
          WHERE l.name = lock_name AND l.holder IS NOT NULL AND l.until_us > now_us
        UNION ALL
        SELECT g.mode, g.fence, g.since_us, g.until_us, g.holder FROM lockfast.claims g
          WHERE g.name = lock_name AND g.stage = 1 AND g.until_us > now_us
      ) h LEFT JOIN lockfast.clients c ON c.client = lockfast.client_of(h.holder)))
$$;
CREATE OR REPLACE FUNCTION lockfast.inspect(lock_name text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT lockfast.view(lock_name, lockfast.clock()) $$;
CREATE OR REPLACE FUNCTION lockfast.list(prefix text, after text, at_most bigint)
RETURNS TABLE (name text, seen text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  now_us bigint := lockfast.clock();
  found bigint := 0;
BEGIN
  FOR name IN SELECT l.name FROM lockfast.locks l
    WHERE l.name >= prefix COLLATE "C" AND (after IS NULL OR l.name > after COLLATE "C")
      AND (l.crowd > 0 OR (l.holder IS NOT NULL AND l.until_us > now_us))
    ORDER BY l.name
  LOOP
    EXIT WHEN found >= at_most OR NOT starts_with(name, prefix);
    seen := lockfast.view(name, now_us);
    IF seen <> '0' THEN
      found := found + 1;
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.acquire(
  lock_name text, me uuid, how integer, ttl_us bigint, delay_us bigint, least_fence bigint,
  call bigint, may_wait boolean, is_watched boolean,
  OUT code smallint, OUT number bigint, OUT note text, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  is_known boolean := false;
  is_told boolean;
  is_first boolean;
  settled record;
  entry record;
BEGIN
  owes := false;
  l := lockfast.lock_row(lock_name);
  now_us := lockfast.clock();
  IF l.passed_us > 0 THEN
    l := lockfast.welcome(l, me, now_us);
  END IF;
  IF (CASE WHEN l.holder IS NULL THEN l.crowd > 0 ELSE l.until_us <= now_us END) THEN
    settled := lockfast.settle(l, now_us, me, how, false);
    l := settled.l; owes := settled.owes;
  END IF;
  IF l.holder = me THEN
    IF how <> 0 THEN
      code := 6; number := 0;
      RETURN;
    END IF;
    UPDATE lockfast.locks k SET until_us = now_us + ttl_us + delay_us, offer = false
      WHERE k.name = lock_name;
    code := 1; number := l.fence;
    RETURN;
  END IF;
  IF l.crowd > 0 THEN
    SELECT * INTO c FROM lockfast.claims k WHERE k.name = lock_name AND k.holder = me;
    is_known := FOUND;
  END IF;
  IF is_known THEN
    IF c.stage = 2 THEN
      code := 7; note := c.reason;
    ELSIF c.mode <> how THEN
      code := 6; number := c.mode;
    ELSIF c.stage = 1 THEN
      UPDATE lockfast.claims k SET until_us = now_us + acquire.ttl_us + acquire.delay_us,
        offer = false WHERE k.name = lock_name AND k.holder = me;
      code := 1; number := c.fence;
    ELSIF may_wait THEN
      UPDATE lockfast.claims k SET ttl_us = acquire.ttl_us, delay_us = acquire.delay_us,
        call = acquire.call, seen_us = now_us WHERE k.name = lock_name AND k.holder = me;
    END IF;
    IF code IS NOT NULL THEN
      RETURN;
    END IF;
    is_first := NOT EXISTS (SELECT FROM lockfast.claims k
      WHERE k.name = lock_name AND k.stage = 0 AND k.ticket < c.ticket);
  ELSE
    entry := lockfast.enter(l, me, how, ttl_us, delay_us, least_fence, call, may_wait, is_watched,
      now_us);
    code := entry.code; number := entry.number; is_first := entry.is_first;
    IF code IS NOT NULL THEN
      RETURN;
    END IF;
  END IF;
  IF may_wait THEN
    code := CASE WHEN is_first THEN 2 ELSE 3 END;
    number := lockfast.blocked_us(l, now_us);
    RETURN;
  END IF;
  IF is_known THEN
    DELETE FROM lockfast.claims d WHERE d.name = lock_name AND d.holder = me;
    l.crowd := l.crowd - 1;
    is_told := lockfast.note('a', lock_name, NULL, me, now_us);
    settled := lockfast.settle(l, now_us, NULL, NULL, false);
    owes := owes OR settled.owes;
  END IF;
  code := 4;
  note := lockfast.view(lock_name, now_us);
END $$;
CREATE OR REPLACE FUNCTION lockfast.enter(
  l lockfast.locks, me uuid, how integer, ttl_us bigint, delay_us bigint, least_fence bigint,
  call bigint, may_wait boolean, is_watched boolean, now_us bigint,
  OUT code smallint, OUT number bigint, OUT is_first boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  granted bigint := 0;
  in_use integer;
  is_granted boolean;
  is_told boolean;
BEGIN
  IF least_fence > now_us + 60000000 THEN
    code := 8;
    RETURN;
  END IF;
  is_first := true;
  IF l.crowd > 0 THEN
    IF how <> 0 THEN
      SELECT k.mode INTO in_use FROM lockfast.claims k
        WHERE k.name = l.name AND k.mode <> 0 AND k.stage < 2 LIMIT 1;
      IF in_use <> how THEN
        code := 5; number := in_use;
        RETURN;
      END IF;
    END IF;
    is_first := NOT EXISTS (SELECT FROM lockfast.claims k WHERE k.name = l.name AND k.stage = 0);
    IF l.holder IS NULL AND is_first THEN
      granted := (SELECT count(*) FROM lockfast.claims k WHERE k.name = l.name AND k.stage = 1);
    END IF;
  END IF;
  is_granted := l.holder IS NULL AND is_first
    AND CASE WHEN how = 0 THEN granted = 0 WHEN how > 0 THEN granted < how ELSE true END;
  IF is_granted THEN
    number := greatest(l.fence + 1, now_us, least_fence + 1);
    IF number >= 9007199254740992 THEN
      code := 9; number := NULL;
      RETURN;
    END IF;
    code := 1;
  ELSIF NOT may_wait THEN
    RETURN;
  END IF;
  IF is_granted AND how = 0 THEN
    UPDATE lockfast.locks k SET fence = number, holder = me, since_us = now_us, offer = false,
      until_us = now_us + enter.ttl_us + enter.delay_us WHERE k.name = l.name;
  ELSE
    INSERT INTO lockfast.claims (name, holder, stage, mode, call, ttl_us, delay_us, floor, seen_us,
        fence, until_us, since_us)
      VALUES (l.name, me, CASE WHEN is_granted THEN 1 ELSE 0 END, how, call, ttl_us, delay_us,
        least_fence, now_us, number, now_us + enter.ttl_us + enter.delay_us, now_us);
    UPDATE lockfast.locks k SET crowd = k.crowd + 1, fence = greatest(k.fence, number)
      WHERE k.name = l.name;
  END IF;
  IF is_watched THEN
    is_told := lockfast.note(CASE WHEN is_granted THEN 'g' ELSE 'q' END, l.name, number, me,
      now_us);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.release(
  lock_name text, me uuid, is_watched boolean, OUT code smallint, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  is_told boolean;
  is_alone boolean := false;
  settled record;
BEGIN
  code := 0;
  owes := false;
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  now_us := lockfast.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    code := 1;
    is_alone := true;
    IF is_watched THEN
      is_told := lockfast.note('r', lock_name, l.fence, me, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM lockfast.claims k WHERE k.name = lock_name AND k.holder = me;
    IF FOUND AND (c.stage <= 0 OR c.until_us > now_us) THEN
      DELETE FROM lockfast.claims d WHERE d.name = lock_name AND d.holder = me;
      l.crowd := l.crowd - 1;
      code := CASE WHEN c.stage = 1 THEN 1 ELSE 0 END;
      IF c.stage < 2 THEN
        is_told := lockfast.note(CASE WHEN c.stage = 1 THEN 'r' ELSE 'a' END, lock_name, c.fence, me,
          now_us);
      END IF;
    END IF;
  END IF;
  settled := lockfast.settle(l, now_us, NULL, NULL, is_alone);
  owes := settled.owes;
END $$;
CREATE OR REPLACE FUNCTION lockfast.renew(
  lock_name text, me uuid, ttl_us bigint, delay_us bigint, OUT code smallint, OUT note text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  before_us bigint;
  is_told boolean;
BEGIN
  code := 0;
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  now_us := lockfast.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    before_us := l.until_us;
    l.until_us := now_us + ttl_us + delay_us;
    UPDATE lockfast.locks k SET until_us = l.until_us, offer = false WHERE k.name = lock_name;
    code := 1;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM lockfast.claims k WHERE k.name = lock_name AND k.holder = me;
    IF FOUND AND c.stage = 2 AND c.until_us > now_us THEN
      code := 2; note := c.reason;
      RETURN;
    ELSIF FOUND AND c.stage = 1 AND c.until_us > now_us THEN
      before_us := c.until_us;
      UPDATE lockfast.claims k SET until_us = now_us + renew.ttl_us + renew.delay_us,
        offer = false WHERE k.name = lock_name AND k.holder = me;
      code := 1;
    END IF;
  END IF;
  IF code = 1 THEN
    IF before_us > now_us + ttl_us + delay_us AND l.crowd > 0 THEN
      is_told := lockfast.tell_other(lock_name, NULL, ttl_us + delay_us, now_us);
    END IF;
    RETURN;
  END IF;
  SELECT h.holder INTO c.holder FROM (
      SELECT l.holder AS holder WHERE l.holder IS NOT NULL AND l.until_us > now_us
      UNION ALL
      SELECT k.holder FROM lockfast.claims k
        WHERE k.name = lock_name AND k.stage = 1 AND k.until_us > now_us
    ) h LIMIT 1;
  IF FOUND THEN
    code := 3;
    SELECT concat_ws(E'\t', k.program, k.host, k.pid, coalesce(k.label, '')) INTO note
      FROM lockfast.clients k WHERE k.client = lockfast.client_of(c.holder);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.serve_4(
  who bytea, via bigint,
  kinds smallint[], names text[], holders uuid[], ttls bigint[], delays bigint[], modes integer[],
  floors bigint[], calls bigint[],
  OUT codes smallint[], OUT numbers bigint[], OUT notes text[], OUT now_us bigint, OUT owed text[]
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  is_watched boolean;
  present_link bigint;
  known bigint;
  least bigint;
  lease_us bigint;
  kind smallint;
  code smallint;
  number bigint;
  said text;
  event text;
  owes boolean;
  answer record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  now_us := lockfast.clock();
  SELECT c.watched_us > now_us, c.link INTO is_watched, present_link
    FROM lockfast.clients c WHERE c.client = who FOR KEY SHARE;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  codes := array_fill(0::smallint, ARRAY[cardinality(kinds)]);
  numbers := array_fill(NULL::bigint, ARRAY[cardinality(kinds)]);
  IF cardinality(kinds) > 1 THEN
    SELECT count(*) INTO known FROM (
      SELECT FROM lockfast.locks l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE) k;
    IF known < cardinality(kinds) THEN
      INSERT INTO lockfast.locks (name, fence, until_us, since_us)
        SELECT DISTINCT r.name, 0, 0, 0 FROM unnest(kinds, names) r (kind, name)
        WHERE r.kind % 10 < 3
          AND NOT EXISTS (SELECT FROM lockfast.locks k WHERE k.name = r.name)
        ORDER BY 1 ON CONFLICT DO NOTHING;
      IF FOUND THEN
        SELECT s.floor INTO least FROM lockfast.store s;
      END IF;
    END IF;
    now_us := lockfast.clock();
  END IF;
  IF cardinality(kinds) > 2 AND NOT is_watched AND coalesce(least, 0) < 9007199254740991 THEN
    FOR answer IN
      UPDATE lockfast.locks l SET
          holder = CASE r.kind WHEN 13 THEN NULL ELSE r.holder END,
          fence = CASE WHEN r.kind < 13 THEN greatest(l.fence + 1, serve_4.now_us, least + 1)
            ELSE l.fence END,
          until_us = CASE r.kind WHEN 13 THEN serve_4.now_us
            ELSE serve_4.now_us + r.ttl + coalesce(r.delay, 0) END,
          since_us = CASE WHEN r.kind < 13 THEN serve_4.now_us ELSE l.since_us END,
          offer = false
        FROM unnest(kinds, names, holders, ttls, delays, modes, floors)
          WITH ORDINALITY AS r (kind, name, holder, ttl, delay, mode, floor, at)
        WHERE l.name = r.name AND r.kind > 10 AND l.crowd = 0
          AND CASE WHEN r.kind < 13 THEN l.holder IS NULL AND l.fence < 9007199254740991
              AND coalesce(r.mode, 0) = 0 AND r.floor IS NULL
            ELSE l.holder = r.holder AND l.until_us > serve_4.now_us END
        RETURNING r.at, l.fence
    LOOP
      codes[answer.at] := 1;
      numbers[answer.at] := answer.fence;
    END LOOP;
  END IF;
  FOR i IN 1 .. cardinality(kinds) LOOP
    CONTINUE WHEN codes[i] = 1;
    code := 0; number := NULL; said := NULL; event := NULL; owes := false;
    kind := kinds[i] % 10;
    lease_us := ttls[i] + coalesce(delays[i], 0);
    IF cardinality(kinds) > 1 THEN
      PERFORM FROM lockfast.locks l WHERE l.name = names[i] FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        codes[i] := CASE WHEN kind < 3 THEN 10 ELSE 0 END;
        CONTINUE;
      END IF;
    END IF;
    IF kind = 3 THEN
      UPDATE lockfast.locks l SET holder = NULL, until_us = serve_4.now_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.crowd = 0
          AND l.until_us > serve_4.now_us
        RETURNING l.fence INTO number;
      IF FOUND THEN
        code := 1; event := 'r';
      ELSE
        answer := lockfast.release(names[i], holders[i], is_watched);
        code := answer.code; owes := answer.owes;
      END IF;
    ELSIF kind = 4 THEN
      UPDATE lockfast.locks l SET until_us = serve_4.now_us + lease_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.until_us > serve_4.now_us
          AND (l.crowd = 0 OR l.until_us <= serve_4.now_us + lease_us);
      IF FOUND THEN
        code := 1;
      ELSE
        SELECT r.code, r.note INTO code, said
          FROM lockfast.renew(names[i], holders[i], ttls[i], coalesce(delays[i], 0)) r;
      END IF;
    ELSE
      IF coalesce(modes[i], 0) = 0 AND floors[i] IS NULL THEN
        number := lockfast.take_free(names[i], holders[i], lease_us, now_us);
      END IF;
      IF number IS NOT NULL THEN
        code := 1; event := 'g';
      ELSE
        answer := lockfast.acquire(names[i], holders[i], coalesce(modes[i], 0), ttls[i],
          coalesce(delays[i], 0), floors[i], calls[i], kind = 2, is_watched);
        code := answer.code; number := answer.number; said := answer.note; owes := answer.owes;
      END IF;
    END IF;
    IF is_watched AND event IS NOT NULL THEN
      is_watched := lockfast.note(event, names[i], number, holders[i], now_us);
    END IF;
    codes[i] := code;
    numbers[i] := number;
    IF owes THEN
      owed := owed || names[i];
    END IF;
    IF said IS NOT NULL THEN
      notes := coalesce(notes, array_fill(NULL::text, ARRAY[cardinality(kinds)]));
      notes[i] := said;
    END IF;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.take_free(
  lock_name text, me uuid, lease_us bigint, now_us bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  number bigint;
  least bigint;
BEGIN
  UPDATE lockfast.locks l SET holder = me, fence = greatest(l.fence + 1, take_free.now_us),
      until_us = take_free.now_us + lease_us, since_us = take_free.now_us
    WHERE l.name = lock_name AND l.holder IS NULL AND l.crowd = 0
      AND l.fence BETWEEN 1 AND 9007199254740990
    RETURNING l.fence INTO number;
  IF FOUND THEN
    RETURN number;
  END IF;
  INSERT INTO lockfast.locks AS l (name, fence, holder, until_us, since_us)
    VALUES (lock_name, take_free.now_us, me, take_free.now_us + lease_us, take_free.now_us)
    ON CONFLICT DO NOTHING RETURNING l.fence INTO number;
  IF FOUND THEN
    SELECT s.floor INTO least FROM lockfast.store s;
    IF least >= number THEN
      UPDATE lockfast.locks l SET fence = least, holder = NULL WHERE l.name = lock_name;
      RETURN NULL;
    END IF;
  END IF;
  RETURN number;
END $$;
CREATE OR REPLACE FUNCTION lockfast.serve(
  who bytea, via bigint,
  kinds smallint[], names text[], holders uuid[], ttls bigint[], delays bigint[], modes integer[],
  floors bigint[], calls bigint[],
  OUT codes smallint[], OUT numbers bigint[], OUT notes text[], OUT now_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  owed text[];
BEGIN
  SELECT s.codes, s.numbers, s.notes, s.now_us, s.owed INTO codes, numbers, notes, now_us, owed
    FROM lockfast.serve_4(who, via, kinds, names, holders, ttls, delays, modes, floors, calls) s;
  IF 10 = ANY (codes) THEN
    RAISE EXCEPTION 'the call is to be repeated' USING ERRCODE = 'serialization_failure';
  END IF;
  IF owed IS NOT NULL THEN
    PERFORM lockfast.push(owed);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.revoke(
  lock_name text, expected bigint, given_reason text, OUT code smallint, OUT seen text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  whose lockfast.clients;
  now_us bigint;
  is_told boolean;
  settled record;
BEGIN
  code := 0;
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  now_us := lockfast.clock();
  IF l.name IS NOT NULL THEN
    settled := lockfast.settle(l, now_us, NULL, NULL, false);
    l := settled.l;
    IF settled.owes THEN
      is_told := lockfast.push(ARRAY[lock_name]);
    END IF;
  END IF;
  seen := lockfast.view(lock_name, now_us);
  IF strpos(seen, E'\n') = 0 THEN
    RETURN;
  END IF;
  IF expected IS NOT NULL AND NOT (l.holder IS NOT NULL AND l.fence = expected)
    AND NOT EXISTS (SELECT FROM lockfast.claims k
      WHERE k.name = lock_name AND k.stage = 1 AND k.fence = expected)
  THEN
    code := 2;
    RETURN;
  END IF;
  code := 1;
  IF l.holder IS NOT NULL THEN
    INSERT INTO lockfast.claims (name, holder, stage, mode, call, ttl_us, delay_us, seen_us, fence,
        until_us, since_us)
      VALUES (lock_name, l.holder, 1, 0, 0, 0, 0, now_us, l.fence, l.until_us, l.since_us);
    l.crowd := l.crowd + 1;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  END IF;
  FOR c IN UPDATE lockfast.claims k SET stage = 2, reason = given_reason
    WHERE k.name = lock_name AND k.stage = 1 RETURNING *
  LOOP
    SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(c.holder);
    is_told := lockfast.note('v', lock_name, c.fence, c.holder, now_us);
    is_told := lockfast.tell(whose, 'R');
  END LOOP;
  settled := lockfast.settle(l, now_us, NULL, NULL, false);
  IF settled.owes THEN
    is_told := lockfast.push(ARRAY[lock_name]);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.revoked(who bytea, via bigint)
RETURNS TABLE (holder uuid, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.holder, k.reason FROM lockfast.claims k
    WHERE k.stage = 2 AND lockfast.client_of(k.holder) = who
      AND EXISTS (SELECT FROM lockfast.clients c WHERE c.client = who AND c.link = via)
$$;
CREATE OR REPLACE FUNCTION lockfast.enrol_4(
  who bytea, via bigint, mail boolean, its_channel text, its_presence bigint, its_program text,
  its_host text, its_pid bigint, its_label text
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  watched bigint;
  events text;
BEGIN
  SELECT s.watched_us, s.events INTO watched, events FROM lockfast.store s FOR SHARE;
  PERFORM FROM lockfast.clients c WHERE c.client = who FOR UPDATE;
  INSERT INTO lockfast.clients AS c
      (client, link, by_mail, channel, presence, program, host, pid, label, seen_us, watched_us)
    VALUES (who, via, mail, its_channel, its_presence, its_program, its_host, its_pid, its_label,
      lockfast.clock(), watched)
    ON CONFLICT (client) DO UPDATE SET link = excluded.link, by_mail = excluded.by_mail,
      channel = excluded.channel, presence = excluded.presence, seen_us = excluded.seen_us,
      watched_us = excluded.watched_us;
  RETURN events;
END $$;
CREATE OR REPLACE FUNCTION lockfast.enrol(
  who bytea, via bigint, mail boolean, its_program text, its_host text, its_pid bigint,
  its_label text
) RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
  SELECT lockfast.enrol_4(who, via, mail, NULL, NULL, its_program, its_host, its_pid, its_label)
$$;
CREATE OR REPLACE FUNCTION lockfast.collect(who bytea, via bigint) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE lockfast.clients c SET seen_us = lockfast.clock()
    WHERE c.client = who AND c.link = via AND c.seen_us < lockfast.clock() - 2000000 / 4;
  WITH taken AS (
    DELETE FROM lockfast.mail m WHERE m.client = who
      AND EXISTS (SELECT FROM lockfast.clients c WHERE c.client = who AND c.link = via)
      RETURNING m.seq, m.message
  )
  SELECT t.message FROM taken t ORDER BY t.seq
$$;
CREATE OR REPLACE FUNCTION lockfast.watch(who bytea, via bigint, for_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  until_us bigint := lockfast.clock() + for_us;
BEGIN
  UPDATE lockfast.store s SET watched_us = greatest(s.watched_us, until_us);
  UPDATE lockfast.clients c SET watches_us = until_us WHERE c.client = who AND c.link = via;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  UPDATE lockfast.clients c SET watched_us = until_us WHERE c.watched_us < until_us;
END $$;
CREATE TABLE IF NOT EXISTS lockfast.values (
  name text COLLATE "C" PRIMARY KEY,
  version bytea NOT NULL,
  bytes bytea NOT NULL,
  until_us bigint,
  CONSTRAINT values_possible CHECK (octet_length(version) = 16 AND octet_length(bytes) <= 65536)
);
CREATE INDEX IF NOT EXISTS values_that_end ON lockfast.values (until_us)
  WHERE until_us IS NOT NULL;
CREATE OR REPLACE FUNCTION lockfast.read_value(value_name text)
RETURNS TABLE (version bytea, bytes bytea, left_us bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now_us bigint := lockfast.clock();
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'values need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'a standby does not tell values' USING ERRCODE = '25006';
  END IF;
  RETURN QUERY SELECT v.version, v.bytes, v.until_us - now_us FROM lockfast.values v
    WHERE v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
END $$;
CREATE OR REPLACE FUNCTION lockfast.write_value(
  who bytea, via bigint, value_name text, expected bytea, own bytea, put bytea, keep_us bigint,
  OUT code smallint, OUT version bytea, OUT bytes bytea, OUT left_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  now_us bigint := lockfast.clock();
  is_watched boolean;
  present_link bigint;
  v lockfast.values;
  is_row boolean;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'values need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  SELECT c.watched_us > now_us, c.link INTO is_watched, present_link
    FROM lockfast.clients c WHERE c.client = who FOR KEY SHARE;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  LOOP
    SELECT * INTO v FROM lockfast.values k WHERE k.name = value_name FOR UPDATE;
    is_row := FOUND;
    now_us := lockfast.clock();
    code := CASE WHEN v.version = own THEN 1 ELSE 0 END;
    IF code = 1 THEN
      RETURN;
    ELSIF v.until_us <= now_us THEN
      v := NULL;
    END IF;
    IF v.version IS DISTINCT FROM expected THEN
      version := v.version; bytes := v.bytes; left_us := v.until_us - now_us;
      RETURN;
    END IF;
    IF is_row AND put IS NULL THEN
      DELETE FROM lockfast.values k WHERE k.name = value_name;
    ELSIF is_row THEN
      UPDATE lockfast.values k SET version = own, bytes = put,
        until_us = now_us + keep_us WHERE k.name = value_name;
    ELSIF put IS NOT NULL THEN
      INSERT INTO lockfast.values (name, version, bytes, until_us)
        VALUES (value_name, own, put, now_us + keep_us) ON CONFLICT DO NOTHING;
      CONTINUE WHEN NOT FOUND;
    END IF;
    EXIT;
  END LOOP;
  code := 1;
  IF is_watched THEN
    PERFORM lockfast.note('c', value_name, NULL, lockfast.first_of(who), now_us);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION lockfast.refresh(lock_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  settled record;
BEGIN
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  settled := lockfast.settle(l, lockfast.clock(), NULL, NULL, false);
  RETURN settled.owes AND lockfast.push(ARRAY[lock_name]);
END $$;
CREATE OR REPLACE FUNCTION lockfast.miss(gone bytea, now_us bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  lock_name text;
  l lockfast.locks;
  settled record;
BEGIN
  FOR lock_name IN SELECT DISTINCT c.name FROM lockfast.claims c WHERE c.stage = 0
    AND c.holder BETWEEN lockfast.first_of(gone) AND lockfast.last_of(gone) ORDER BY 1
  LOOP
    SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    l := lockfast.pass_over(l, gone, now_us);
    UPDATE lockfast.locks k SET passed_us = l.passed_us WHERE k.name = lock_name;
  END LOOP;
  RETURN true;
END $$;
CREATE OR REPLACE FUNCTION lockfast.expire() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  now_us bigint := lockfast.clock();
  ended text;
  count bigint := 0;
BEGIN
  FOR ended IN
    SELECT l.name FROM lockfast.locks l WHERE l.holder IS NOT NULL AND l.until_us <= now_us
    UNION
    SELECT c.name FROM lockfast.claims c WHERE c.stage > 0 AND c.until_us <= now_us
    ORDER BY 1 LIMIT 1000
  LOOP
    PERFORM lockfast.refresh(ended);
    count := count + 1;
  END LOOP;
  RETURN count;
END $$;
CREATE OR REPLACE FUNCTION lockfast.sweep(who bytea, idle_us bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  now_us bigint := lockfast.clock();
  least_idle_us bigint := greatest(idle_us, 1000000);
  idle text;
  highest bigint;
  count bigint;
BEGIN
  PERFORM FROM lockfast.store s FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    UPDATE lockfast.clients c SET seen_us = now_us
      WHERE c.client = who AND c.seen_us < now_us - 3600000000;
    RETURN 0;
  END IF;
  DELETE FROM lockfast.mail m WHERE m.sent_us < now_us - 60000000;
  PERFORM lockfast.miss(q.client, now_us) FROM (
      SELECT lockfast.client_of(c.holder) AS client, max(c.seen_us) AS seen_us
        FROM lockfast.claims c WHERE c.stage = 0 GROUP BY 1
    ) q LEFT JOIN lockfast.clients c ON c.client = q.client
    WHERE NOT lockfast.is_there(c, q.seen_us, now_us);
  FOR idle IN
    SELECT c.name FROM lockfast.claims c WHERE c.stage > 0 AND c.until_us <= now_us
    UNION
    SELECT l.name FROM lockfast.locks l WHERE l.passed_us BETWEEN 1 AND now_us
    ORDER BY 1 LIMIT 1000
  LOOP
    PERFORM lockfast.refresh(idle);
  END LOOP;
  WITH gone AS (
    DELETE FROM lockfast.locks d WHERE d.name IN (
      SELECT l.name FROM lockfast.locks l
        WHERE l.crowd = 0 AND l.until_us < now_us - least_idle_us
          AND NOT (starts_with(l.name, E'\x01') AND lockfast.is_advised(substr(l.name, 2)))
        LIMIT 10000 FOR UPDATE SKIP LOCKED)
    RETURNING d.fence
  )
  SELECT max(g.fence), count(*) INTO highest, count FROM gone g;
  UPDATE lockfast.store s SET floor = highest WHERE s.floor < highest;
  UPDATE lockfast.clients c SET seen_us = now_us
    WHERE c.client = who AND c.seen_us < now_us - 3600000000;
  DELETE FROM lockfast.clients c WHERE c.seen_us < now_us - 604800000000;
  DELETE FROM lockfast.values d WHERE d.name IN (
    SELECT v.name FROM lockfast.values v WHERE v.until_us <= now_us
      LIMIT 10000 FOR UPDATE SKIP LOCKED);
  RETURN count;
END $$;
CREATE OR REPLACE FUNCTION lockfast.raise_fence(lock_name text, least_fence bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  l lockfast.locks;
  now_us bigint;
BEGIN
  l := lockfast.lock_row(E'\x01' || lock_name);
  now_us := lockfast.clock();
  IF least_fence > now_us + 60000000 THEN
    RETURN NULL;
  END IF;
  UPDATE lockfast.locks k
    SET fence = greatest(l.fence + 1, now_us, least_fence + 1), until_us = now_us, since_us = now_us
    WHERE k.name = l.name RETURNING k.fence INTO l.fence;
  RETURN l.fence;
END $$;
CREATE OR REPLACE FUNCTION lockfast.last_fence(lock_name text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.fence FROM lockfast.locks l WHERE l.name = E'\x01' || lock_name
$$;
CREATE OR REPLACE FUNCTION lockfast.advisory_names(prefix text, after text)
RETURNS SETOF text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT substr(l.name, 2) FROM lockfast.locks l
    WHERE starts_with(l.name, E'\x01' || prefix)
      AND (after IS NULL OR l.name > (E'\x01' || after) COLLATE "C")
    ORDER BY l.name
$$;
CREATE OR REPLACE FUNCTION lockfast.is_advised(lock_name text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM pg_locks p WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND (p.classid::bigint << 32) | p.objid::bigint
      = CASE WHEN lock_name ~ '^(0|-?[1-9][0-9]{0,17})$' THEN lock_name::bigint
        ELSE hashtextextended(lock_name, 0) END)
$$;
CREATE OR REPLACE FUNCTION lockfast.version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT 5 $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lockfast FROM PUBLIC;
DO $do$
DECLARE
  entitled regrole;
BEGIN
  FOR entitled IN SELECT DISTINCT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.pronamespace = 'lockfast'::regnamespace AND p.proname = 'serve'
      AND a.privilege_type = 'EXECUTE' AND a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockfast TO %s', entitled);
  END LOOP;
END $do$;
