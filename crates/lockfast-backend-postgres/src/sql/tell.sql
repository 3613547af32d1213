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
  RETURN whom.client IS NOT NULL AND pg_notify(
    coalesce(whom.channel, 'lockfast:' || encode(whom.client, 'hex')), message)::text IS NOT NULL;
END $$;

-- Whether the process of a client that asked at `asked_us` is still connected. One that listens
-- has an advisory lock for as long as it does; one that waits for mail reads it often. Everybody
-- sees the keys of advisory locks and may take them, but nobody knows a key before the client has
-- the lock. If a stranger has it after the client is gone, the client seems to hang.
CREATE OR REPLACE FUNCTION {schema}.is_there(whom {schema}.clients, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE
    WHEN whom.client IS NULL THEN false
    WHEN whom.by_mail THEN greatest(whom.seen_us, asked_us) > now_us - {silence_us}
    WHEN whom.presence IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(whom.presence)
    ELSE NOT pg_try_advisory_xact_lock({listener_class}, {schema}.key_of(whom.client))
  END;
END $$;

-- Tells those who watch what happened to a lock: q queued, g granted, r released, a abandoned,
-- e expired, v revoked. A transaction's equal messages become one, so each has a number.
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
  o record;
  whose {schema}.clients;
  now_us bigint := {schema}.clock();
  is_told boolean;
  last text;
BEGIN
  FOR o IN
    SELECT l.name, l.holder, l.call, l.fence, l.since_us, l.lasts_us, l.until_us
      FROM {schema}.locks l WHERE l.name = ANY (owed) AND l.offer AND l.holder IS NOT NULL
    UNION ALL
    SELECT c.name, c.holder, c.call, c.fence, c.since_us, least(c.ttl_us, {offer_us}), c.until_us
      FROM {schema}.claims c WHERE c.name = ANY (owed) AND c.stage = 1 AND c.offer
  LOOP
    CONTINUE WHEN o.until_us <= now_us;
    SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(o.holder);
    is_told := {schema}.tell(whose,
      concat_ws(' ', 'G', o.call, o.fence, o.since_us, o.lasts_us));
    IF o.name IS DISTINCT FROM last THEN
      last := o.name;
      is_told := {schema}.tell_other(o.name, whose.client, o.until_us - now_us, now_us);
    END IF;
  END LOOP;
  RETURN is_told;
END $$;

-- Lets somebody of another process than `but` look at a lock after so long: the next in line, else
-- whoever the key of claims finds, which costs the same however many wait.
CREATE OR REPLACE FUNCTION {schema}.tell_other(
  lock_name text, but bytea, after_us bigint, now_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE
-- The planner takes the line for a short one.
SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  c {schema}.claims;
  whose {schema}.clients;
  has_turned boolean := false;
  nobody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
  SELECT * INTO c FROM {schema}.claims w WHERE w.name = lock_name AND w.stage = 0
    ORDER BY w.ticket LIMIT 1;
  FOR tries IN 1 .. 8 LOOP
    IF c.holder IS NOT NULL THEN
      SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
      IF whose.client IS DISTINCT FROM but AND {schema}.is_there(whose, c.seen_us, now_us) THEN
        RETURN {schema}.tell(whose, concat_ws(' ', 'H', c.call, after_us));
      END IF;
    ELSIF has_turned THEN
      RETURN false;
    ELSE
      has_turned := true;
    END IF;
    SELECT * INTO c FROM {schema}.claims w WHERE w.name = lock_name AND w.stage = 0
      AND w.holder > coalesce({schema}.last_of({schema}.client_of(c.holder)), nobody)
      ORDER BY w.holder LIMIT 1;
  END LOOP;
  RETURN false;
END $$;

-- For clients: it must not be a part of what is written to disk before it is told, because all of
-- the server's commits with messages wait for each other.
CREATE OR REPLACE FUNCTION {schema}.push_4(owed text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  setting text := set_config('synchronous_commit', 'off', true);
BEGIN
  RETURN {schema}.push(owed);
END $$;
