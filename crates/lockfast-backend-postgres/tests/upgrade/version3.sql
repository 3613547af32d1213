-- The schema as version 3 made it, without its comments.
CREATE SCHEMA lockfast;
CREATE TABLE lockfast.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  floor bigint NOT NULL DEFAULT 0,
  watched_us bigint NOT NULL DEFAULT 0
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
  watched_us bigint NOT NULL DEFAULT 0
);
CREATE TABLE lockfast.locks (
  name text COLLATE "C" PRIMARY KEY,
  fence bigint NOT NULL,
  holder uuid,
  until_us bigint NOT NULL,
  since_us bigint NOT NULL,
  offer boolean NOT NULL DEFAULT false,
  crowd integer NOT NULL DEFAULT 0
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
CREATE TABLE lockfast.mail (
  seq bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  client bytea NOT NULL,
  message text NOT NULL,
  sent_us bigint NOT NULL
);
CREATE INDEX mail_of_client ON lockfast.mail (client, seq);
CREATE OR REPLACE FUNCTION lockfast.clock() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;
CREATE OR REPLACE FUNCTION lockfast.beginning() RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint $$;
CREATE OR REPLACE FUNCTION lockfast.client_of(holder uuid) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT substring(uuid_send(holder) FROM 1 FOR 6) $$;
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
  RETURN whom.client IS NOT NULL
    AND pg_notify('lockfast:' || encode(whom.client, 'hex'), message)::text IS NOT NULL;
END $$;
CREATE OR REPLACE FUNCTION lockfast.is_there(whom lockfast.clients, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE
    WHEN whom.client IS NULL THEN false
    WHEN whom.by_mail THEN greatest(whom.seen_us, asked_us) > now_us - 2000000
    ELSE NOT pg_try_advisory_xact_lock(1279675137, lockfast.key_of(whom.client))
  END;
END $$;
CREATE OR REPLACE FUNCTION lockfast.note(
  kind text, lock_name text, fence bigint, holder uuid, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  message text;
BEGIN
  IF (SELECT s.watched_us FROM lockfast.store s) <= now_us THEN
    RETURN false;
  END IF;
  SELECT concat_ws(E'\t', kind, now_us, coalesce(fence, 0), lock_name,
      coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, ''),
      nextval(pg_get_serial_sequence('lockfast.mail', 'seq')))
    INTO message
    FROM (VALUES (lockfast.client_of(holder))) AS wanted (client)
    LEFT JOIN lockfast.clients c ON c.client = wanted.client;
  PERFORM pg_notify('lockfast:events:lockfast', message);
  INSERT INTO lockfast.mail (client, message, sent_us)
    SELECT c.client, 'E' || E'\t' || message, now_us FROM lockfast.clients c
    WHERE c.by_mail AND c.watches_us > now_us;
  RETURN true;
END $$;
CREATE OR REPLACE FUNCTION lockfast.settle(
  INOUT l lockfast.locks, now_us bigint, me uuid, how integer, moved boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c lockfast.claims;
  whose lockfast.clients;
  ahead bigint;
  has_ended boolean;
  is_told boolean;
  number bigint;
  lasts_us bigint;
  is_mine boolean;
BEGIN
  IF l.holder IS NOT NULL AND l.until_us <= now_us THEN
    is_told := lockfast.note('e', l.name, l.fence, l.holder, now_us);
    IF l.offer AND l.crowd > 0 THEN
      l := lockfast.drop_silent(l, l.holder, l.since_us, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
  END IF;
  IF l.crowd > 0 THEN
    SELECT count(*) FILTER (WHERE g.stage = 1), bool_or(g.until_us <= now_us)
      INTO ahead, has_ended FROM lockfast.claims g WHERE g.name = l.name AND g.stage > 0;
    IF has_ended THEN
      l := lockfast.drop_ended(l, now_us);
      ahead := (SELECT count(*) FROM lockfast.claims g WHERE g.name = l.name AND g.stage = 1);
    END IF;
    FOR c IN SELECT * FROM lockfast.claims w
      WHERE w.name = l.name AND w.stage = 0 ORDER BY w.ticket
    LOOP
      is_mine := me IS NOT NULL AND c.holder = me AND c.mode = how;
      number := greatest(l.fence + 1, now_us, c.floor + 1);
      SELECT * INTO whose FROM lockfast.clients w WHERE w.client = lockfast.client_of(c.holder);
      IF c.seen_us <= now_us - 20000000 AND NOT is_mine THEN
        moved := true;
        l := lockfast.drop_waiting(l, c.holder, now_us);
        CONTINUE;
      ELSIF l.holder IS NOT NULL OR (c.mode = 0 AND ahead > 0) OR (c.mode > 0 AND ahead >= c.mode)
        OR number >= 9007199254740992
      THEN
        IF moved AND NOT is_mine THEN
          is_told := lockfast.tell(whose,
            concat_ws(' ', 'H', c.call, lockfast.blocked_us(l, now_us)));
        END IF;
        EXIT;
      END IF;
      moved := true;
      IF NOT is_mine AND NOT lockfast.is_there(whose, c.seen_us, now_us) THEN
        l := lockfast.drop_waiting(l, c.holder, now_us);
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
      ELSE
        UPDATE lockfast.claims g SET stage = 1, fence = number, since_us = now_us,
          until_us = now_us + lasts_us + c.delay_us, offer = NOT is_mine
          WHERE g.name = c.name AND g.holder = c.holder;
        ahead := ahead + 1;
      END IF;
      IF coalesce(whose.watched_us > now_us, true) THEN
        is_told := lockfast.note('g', l.name, number, c.holder, now_us);
      END IF;
      IF NOT is_mine THEN
        is_told := lockfast.tell(whose, concat_ws(' ', 'G', c.call, number, now_us, lasts_us));
      END IF;
    END LOOP;
  END IF;
  UPDATE lockfast.locks k SET fence = l.fence, holder = l.holder, until_us = l.until_us,
    since_us = l.since_us, offer = l.offer, crowd = l.crowd
    WHERE k.name = l.name;
END $$;
CREATE OR REPLACE FUNCTION lockfast.drop_waiting(
  INOUT l lockfast.locks, who uuid, now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  is_told boolean;
BEGIN
  DELETE FROM lockfast.claims d WHERE d.name = l.name AND d.holder = who;
  l.crowd := l.crowd - 1;
  is_told := lockfast.note('a', l.name, NULL, who, now_us);
END $$;
CREATE OR REPLACE FUNCTION lockfast.drop_ended(INOUT l lockfast.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c lockfast.claims;
  is_told boolean;
BEGIN
  FOR c IN DELETE FROM lockfast.claims d WHERE d.name = l.name
    AND CASE d.stage WHEN 0 THEN d.seen_us <= now_us - 20000000 ELSE d.until_us <= now_us END
    RETURNING *
  LOOP
    l.crowd := l.crowd - 1;
    IF c.stage < 2 THEN
      is_told := lockfast.note(CASE c.stage WHEN 0 THEN 'a' ELSE 'e' END, l.name, c.fence, c.holder,
        now_us);
    END IF;
    IF c.stage = 1 AND c.offer THEN
      l := lockfast.drop_silent(l, c.holder, c.since_us, now_us);
    END IF;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.drop_silent(
  INOUT l lockfast.locks, silent uuid, since_us bigint, now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  waiting uuid;
BEGIN
  FOR waiting IN SELECT d.holder FROM lockfast.claims d WHERE d.name = l.name AND d.stage = 0
    AND d.seen_us < drop_silent.since_us
    AND lockfast.client_of(d.holder) = lockfast.client_of(silent)
  LOOP
    l := lockfast.drop_waiting(l, waiting, now_us);
  END LOOP;
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
    EXIT WHEN FOUND;
    INSERT INTO lockfast.locks (name, fence, until_us, since_us)
      SELECT lock_name, s.floor, 0, 0 FROM lockfast.store s ON CONFLICT DO NOTHING;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION lockfast.view(lock_name text, now_us bigint) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT concat_ws(E'\n',
    (SELECT count(*) FROM lockfast.claims w
      WHERE w.name = lock_name AND w.stage = 0 AND w.seen_us > now_us - 20000000)::text,
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
  OUT code smallint, OUT number bigint, OUT note text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  is_known boolean := false;
  is_told boolean;
  is_first boolean;
  entry record;
BEGIN
  l := lockfast.lock_row(lock_name);
  now_us := lockfast.clock();
  IF l.crowd > 0 AND EXISTS (SELECT FROM lockfast.claims k WHERE k.name = lock_name AND CASE k.stage
    WHEN 0 THEN k.seen_us <= now_us - 20000000 ELSE k.until_us <= now_us END)
  THEN
    l := lockfast.drop_ended(l, now_us);
    l := lockfast.settle(l, now_us, me, how, true);
  ELSIF (CASE WHEN l.holder IS NULL THEN l.crowd > 0 ELSE l.until_us <= now_us END) THEN
    l := lockfast.settle(l, now_us, me, how, false);
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
    l := lockfast.settle(l, now_us, NULL, NULL, true);
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
  waiting bigint := 0;
  in_use integer;
  is_granted boolean;
  is_told boolean;
BEGIN
  IF least_fence > now_us + 60000000 THEN
    code := 8;
    RETURN;
  END IF;
  IF l.crowd > 0 THEN
    SELECT count(*) FILTER (WHERE k.stage = 1), count(*) FILTER (WHERE k.stage = 0),
        min(k.mode) FILTER (WHERE k.stage < 2 AND k.mode <> 0)
      INTO granted, waiting, in_use FROM lockfast.claims k WHERE k.name = l.name;
    IF how <> 0 AND in_use <> how THEN
      code := 5; number := in_use;
      RETURN;
    END IF;
  END IF;
  is_first := waiting = 0;
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
CREATE OR REPLACE FUNCTION lockfast.release(lock_name text, me uuid, is_watched boolean)
RETURNS smallint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  was_held boolean := false;
  was_head boolean := false;
  is_told boolean;
BEGIN
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  now_us := lockfast.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    was_held := true;
    IF is_watched THEN
      is_told := lockfast.note('r', lock_name, l.fence, me, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM lockfast.claims k WHERE k.name = lock_name AND k.holder = me;
    IF FOUND AND (c.stage = 0 OR c.until_us > now_us) THEN
      was_head := c.stage = 0 AND NOT EXISTS (SELECT FROM lockfast.claims k
        WHERE k.name = lock_name AND k.stage = 0 AND k.ticket < c.ticket);
      DELETE FROM lockfast.claims d WHERE d.name = lock_name AND d.holder = me;
      l.crowd := l.crowd - 1;
      was_held := c.stage = 1;
      IF c.stage < 2 THEN
        is_told := lockfast.note(CASE c.stage WHEN 0 THEN 'a' ELSE 'r' END, lock_name, c.fence, me,
          now_us);
      END IF;
    END IF;
  END IF;
  l := lockfast.settle(l, now_us, NULL, NULL, was_head);
  RETURN CASE WHEN was_held THEN 1 ELSE 0 END;
END $$;
CREATE OR REPLACE FUNCTION lockfast.renew(
  lock_name text, me uuid, ttl_us bigint, delay_us bigint, OUT code smallint, OUT note text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
  c lockfast.claims;
  now_us bigint;
  before_us bigint;
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
    IF before_us > now_us + ttl_us + delay_us THEN
      PERFORM lockfast.settle(l, now_us, NULL, NULL, true);
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
CREATE OR REPLACE FUNCTION lockfast.serve(
  who bytea, via bigint,
  kinds smallint[], names text[], holders uuid[], ttls bigint[], delays bigint[], modes integer[],
  floors bigint[], calls bigint[],
  OUT codes smallint[], OUT numbers bigint[], OUT notes text[], OUT now_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  is_watched boolean;
  present_link bigint;
  lease_us bigint;
  kind smallint;
  code smallint;
  number bigint;
  said text;
  event text;
  answer record;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(1279675138, lockfast.key_of(who)) THEN
    RAISE EXCEPTION 'another connection is taking the place of this one' USING ERRCODE = 'LF001';
  END IF;
  now_us := lockfast.clock();
  SELECT s.watched_us > now_us, c.link INTO is_watched, present_link
    FROM lockfast.store s LEFT JOIN lockfast.clients c ON c.client = who;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  codes := array_fill(0::smallint, ARRAY[cardinality(kinds)]);
  numbers := array_fill(NULL::bigint, ARRAY[cardinality(kinds)]);
  IF cardinality(kinds) > 2 AND NOT is_watched THEN
    FOR answer IN
      UPDATE lockfast.locks l SET
          holder = CASE r.kind WHEN 13 THEN NULL ELSE r.holder END,
          fence = CASE WHEN r.kind < 13 THEN greatest(l.fence + 1, serve.now_us) ELSE l.fence END,
          until_us = CASE r.kind WHEN 13 THEN serve.now_us
            ELSE serve.now_us + r.ttl + coalesce(r.delay, 0) END,
          since_us = CASE WHEN r.kind < 13 THEN serve.now_us ELSE l.since_us END,
          offer = false
        FROM unnest(kinds, names, holders, ttls, delays, modes, floors)
          WITH ORDINALITY AS r (kind, name, holder, ttl, delay, mode, floor, at)
        WHERE l.name = r.name AND r.kind > 10 AND l.crowd = 0
          AND CASE WHEN r.kind < 13 THEN l.holder IS NULL AND l.fence < 9007199254740991
              AND coalesce(r.mode, 0) = 0 AND r.floor IS NULL
            ELSE l.holder = r.holder AND l.until_us > serve.now_us END
        RETURNING r.at, l.fence
    LOOP
      codes[answer.at] := 1;
      numbers[answer.at] := answer.fence;
    END LOOP;
  END IF;
  FOR i IN 1 .. cardinality(kinds) LOOP
    CONTINUE WHEN codes[i] = 1;
    code := 0; number := NULL; said := NULL; event := NULL;
    kind := kinds[i] % 10;
    lease_us := ttls[i] + coalesce(delays[i], 0);
    IF kind = 3 THEN
      UPDATE lockfast.locks l SET holder = NULL, until_us = serve.now_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.crowd = 0
          AND l.until_us > serve.now_us
        RETURNING l.fence INTO number;
      IF FOUND THEN
        code := 1; event := 'r';
      ELSE
        code := lockfast.release(names[i], holders[i], is_watched);
      END IF;
    ELSIF kind = 4 THEN
      UPDATE lockfast.locks l SET until_us = serve.now_us + lease_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.until_us > serve.now_us
          AND (l.crowd = 0 OR l.until_us <= serve.now_us + lease_us);
      IF FOUND THEN
        code := 1;
      ELSE
        SELECT r.code, r.note INTO code, said
          FROM lockfast.renew(names[i], holders[i], ttls[i], coalesce(delays[i], 0)) r;
      END IF;
    ELSE
      IF coalesce(modes[i], 0) = 0 AND floors[i] IS NULL THEN
        UPDATE lockfast.locks l SET holder = holders[i], fence = greatest(l.fence + 1, serve.now_us),
            until_us = serve.now_us + lease_us, since_us = serve.now_us
          WHERE l.name = names[i] AND l.holder IS NULL AND l.crowd = 0
            AND l.fence < 9007199254740991
          RETURNING l.fence INTO number;
        IF NOT FOUND THEN
          INSERT INTO lockfast.locks AS l (name, fence, holder, until_us, since_us)
            SELECT names[i], greatest(s.floor + 1, serve.now_us), holders[i],
                serve.now_us + lease_us, serve.now_us
              FROM lockfast.store s
              WHERE s.floor < 9007199254740991
            ON CONFLICT DO NOTHING RETURNING l.fence INTO number;
        END IF;
      END IF;
      IF number IS NOT NULL THEN
        code := 1; event := 'g';
      ELSE
        answer := lockfast.acquire(names[i], holders[i], coalesce(modes[i], 0), ttls[i],
          coalesce(delays[i], 0), floors[i], calls[i], kind = 2, is_watched);
        code := answer.code; number := answer.number; said := answer.note;
      END IF;
    END IF;
    IF is_watched AND event IS NOT NULL THEN
      is_watched := lockfast.note(event, names[i], number, holders[i], now_us);
    END IF;
    codes[i] := code;
    numbers[i] := number;
    IF said IS NOT NULL THEN
      notes := coalesce(notes, array_fill(NULL::text, ARRAY[cardinality(kinds)]));
      notes[i] := said;
    END IF;
  END LOOP;
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
BEGIN
  code := 0;
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  now_us := lockfast.clock();
  IF FOUND THEN
    l := lockfast.settle(l, now_us, NULL, NULL, false);
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
  l := lockfast.settle(l, now_us, NULL, NULL, false);
END $$;
CREATE OR REPLACE FUNCTION lockfast.revoked(who bytea, via bigint)
RETURNS TABLE (holder uuid, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.holder, k.reason FROM lockfast.claims k
    WHERE k.stage = 2 AND lockfast.client_of(k.holder) = who
      AND EXISTS (SELECT FROM lockfast.clients c WHERE c.client = who AND c.link = via)
$$;
CREATE OR REPLACE FUNCTION lockfast.enrol(
  who bytea, via bigint, mail boolean, its_program text, its_host text, its_pid bigint,
  its_label text
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2000ms' AS $$
DECLARE
  watched bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(1279675138, lockfast.key_of(who));
  SELECT s.watched_us INTO watched FROM lockfast.store s FOR SHARE;
  INSERT INTO lockfast.clients AS c
      (client, link, by_mail, program, host, pid, label, seen_us, watched_us)
    VALUES (who, via, mail, its_program, its_host, its_pid, its_label, lockfast.clock(), watched)
    ON CONFLICT (client) DO UPDATE SET link = excluded.link, by_mail = excluded.by_mail,
      seen_us = excluded.seen_us, watched_us = excluded.watched_us;
END $$;
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
CREATE OR REPLACE FUNCTION lockfast.refresh(lock_name text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l lockfast.locks;
BEGIN
  SELECT * INTO l FROM lockfast.locks k WHERE k.name = lock_name FOR UPDATE;
  IF FOUND THEN
    PERFORM lockfast.settle(l, lockfast.clock(), NULL, NULL, false);
  END IF;
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
  IF NOT pg_try_advisory_xact_lock(1279675139, 0) THEN
    UPDATE lockfast.clients c SET seen_us = now_us
      WHERE c.client = who AND c.seen_us < now_us - 3600000000;
    RETURN 0;
  END IF;
  DELETE FROM lockfast.mail m WHERE m.sent_us < now_us - 60000000;
  FOR idle IN SELECT DISTINCT c.name FROM lockfast.claims c
    WHERE CASE c.stage WHEN 0 THEN c.seen_us <= now_us - 20000000 ELSE c.until_us <= now_us END
    ORDER BY c.name LIMIT 1000
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
      = CASE WHEN lock_name ~ '^-?[0-9]{1,18}$' THEN lock_name::bigint
        ELSE hashtextextended(lock_name, 0) END)
$$;
CREATE OR REPLACE FUNCTION lockfast.version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT 3 $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lockfast FROM PUBLIC;
