-- Tells a client something: by a push where it listens, else by mail. Like all that is done often
-- it answers something: a call in an expression costs a fraction of a statement.
CREATE OR REPLACE FUNCTION {schema}.tell(whom {schema}.clients, message text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF whom.by_mail THEN
    INSERT INTO {schema}.mail (client, message, sent_us)
      VALUES (whom.client, tell.message, {schema}.clock());
    RETURN true;
  END IF;
  RETURN whom.channel IS NOT NULL AND pg_notify(whom.channel, message)::text IS NOT NULL;
END $$;

-- Whether the process of a client that asked at `asked_us` is still connected. One that listens
-- has an advisory lock for as long as it does; one that waits for mail reads it often. Everybody
-- sees the keys of advisory locks and may take them, but nobody knows a key before the client has
-- the lock. If a stranger has it after the client is gone, the client seems to hang.
CREATE OR REPLACE FUNCTION {schema}.is_there(whom {schema}.clients, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE
    WHEN whom.by_mail THEN greatest(whom.seen_us, asked_us) > now_us - {silence_us}
    WHEN whom.presence IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(whom.presence)
    ELSE false
  END;
END $$;

-- Tells those who watch what happened to a lock: q queued, g granted, r released, a abandoned,
-- e expired, v revoked; or that a value was changed: c. A transaction's equal messages become one, so each has a number.
CREATE OR REPLACE FUNCTION {schema}.note(
  kind text, lock_name text, fence bigint, holder uuid, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  message text;
  is_watched boolean;
  events text;
BEGIN
  SELECT s.watched_us > now_us, s.events INTO is_watched, events FROM {schema}.store s;
  IF NOT is_watched THEN
    RETURN false;
  END IF;
  SELECT concat_ws(E'\t', kind, now_us, coalesce(fence, 0), lock_name,
      coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, ''),
      nextval(pg_get_serial_sequence('{schema}.mail', 'seq')))
    INTO message
    FROM (VALUES ({schema}.client_of(holder))) AS wanted (client)
    LEFT JOIN {schema}.clients c ON c.client = wanted.client;
  PERFORM pg_notify(events, message);
  INSERT INTO {schema}.mail (client, message, sent_us)
    SELECT c.client, 'E' || E'\t' || message, now_us FROM {schema}.clients c
    WHERE c.by_mail AND c.watches_us > now_us;
  RETURN true;
END $$;

-- Tells the clients to whom locks were handed over, and for each lock somebody else, who looks when
-- that ends and so finds out if nobody answered. It reads what is so now, so that it can be done
-- after the commit, again, and by anybody.
CREATE OR REPLACE FUNCTION {schema}.push(owed text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  lock_name text;
  l {schema}.locks;
  c {schema}.claims;
  whose {schema}.clients;
  now_us bigint := {schema}.clock();
  is_told boolean := false;
BEGIN
  FOREACH lock_name IN ARRAY owed LOOP
    SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name;
    IF l.offer AND l.until_us > now_us THEN
      SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(l.holder);
      is_told := {schema}.tell(whose,
          concat_ws(' ', 'G', l.call, l.fence, l.since_us, l.lasts_us))
        AND l.crowd > 0
        AND {schema}.tell_other(lock_name, whose.client, l.until_us - now_us, now_us);
    ELSIF l.holder IS NULL AND l.crowd > 0 THEN
      FOR c IN SELECT * FROM {schema}.claims g
        WHERE g.name = lock_name AND g.stage = 1 AND g.offer AND g.until_us > now_us
      LOOP
        SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
        is_told := {schema}.tell(whose, concat_ws(' ', 'G', c.call, c.fence, c.since_us,
          least(c.ttl_us, {offer_us})));
      END LOOP;
      is_told := whose.client IS NOT NULL
        AND {schema}.tell_other(lock_name, whose.client, {offer_us}, now_us);
    END IF;
  END LOOP;
  RETURN is_told;
END $$;

-- Lets somebody of another process than `but` look at a lock after so long: the next in line, else
-- whoever the key of claims finds, which costs the same however many wait.
CREATE OR REPLACE FUNCTION {schema}.tell_other(
  lock_name text, but bytea, after_us bigint, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.claims;
  whose {schema}.clients;
  last uuid;
  has_turned boolean := false;
BEGIN
  SELECT * INTO c FROM {schema}.claims w WHERE w.name = lock_name AND w.stage = 0
    ORDER BY w.ticket LIMIT 1;
  IF c.holder IS NULL THEN
    RETURN false;
  END IF;
  FOR tries IN 1 .. 8 LOOP
    IF c.name = lock_name THEN
      SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
      IF c.stage = 0 AND whose.client IS DISTINCT FROM but
        AND {schema}.is_there(whose, c.seen_us, now_us)
      THEN
        RETURN {schema}.tell(whose, concat_ws(' ', 'H', c.call, after_us));
      END IF;
      last := {schema}.last_of({schema}.client_of(c.holder));
    ELSIF has_turned THEN
      RETURN false;
    ELSE
      has_turned := true;
      last := '00000000-0000-0000-0000-000000000000';
    END IF;
    -- In this form the planner walks along the key, whatever it takes the line's length for.
    SELECT * INTO c FROM {schema}.claims w WHERE (w.name, w.holder) > (lock_name, last)
      ORDER BY w.name, w.holder LIMIT 1;
    c.name := coalesce(c.name, '');
  END LOOP;
  RETURN false;
END $$;

-- For clients: it must not be a part of what is written to disk before it is told, because all of
-- the server's commits with messages wait for each other.
CREATE OR REPLACE FUNCTION {schema}.push_later(owed text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  setting text := set_config('synchronous_commit', 'off', true);
BEGIN
  RETURN {schema}.push(owed);
END $$;
