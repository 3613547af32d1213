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
  RETURN whom.client IS NOT NULL
    AND pg_notify('lockfast:' || encode(whom.client, 'hex'), message)::text IS NOT NULL;
END $$;

-- Whether the process of a client that asked at `asked_us` is still connected. One that listens
-- has an advisory lock for as long as it does; one that waits for mail reads it often.
CREATE OR REPLACE FUNCTION {schema}.is_there(whom {schema}.clients, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE
    WHEN whom.client IS NULL THEN false
    WHEN whom.by_mail THEN greatest(whom.seen_us, asked_us) > now_us - {silence_us}
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
BEGIN
  IF (SELECT s.watched_us FROM {schema}.store s) <= now_us THEN
    RETURN false;
  END IF;
  SELECT concat_ws(E'\t', kind, now_us, coalesce(fence, 0), lock_name,
      coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, ''),
      nextval(pg_get_serial_sequence('{schema}.mail', 'seq')))
    INTO message
    FROM (VALUES ({schema}.client_of(holder))) AS wanted (client)
    LEFT JOIN {schema}.clients c ON c.client = wanted.client;
  PERFORM pg_notify('lockfast:events:{schema}', message);
  INSERT INTO {schema}.mail (client, message, sent_us)
    SELECT c.client, 'E' || E'\t' || message, now_us FROM {schema}.clients c
    WHERE c.by_mail AND c.watches_us > now_us;
  RETURN true;
END $$;
