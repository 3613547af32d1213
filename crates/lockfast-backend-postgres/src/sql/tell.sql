-- Tells a client something: by a push where it listens, else by mail.
CREATE OR REPLACE FUNCTION {schema}.tell(whom bytea, message text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF (SELECT c.by_mail FROM {schema}.clients c WHERE c.client = whom) THEN
    INSERT INTO {schema}.mail (client, message, sent_us) VALUES (whom, message, {schema}.clock());
  ELSE
    PERFORM pg_notify('lockfast:' || encode(whom, 'hex'), message);
  END IF;
END $$;

-- Whether the process of a client that asked at `asked_us` is still connected. One that listens
-- has an advisory lock for as long as it does; one that waits for mail reads it often.
CREATE OR REPLACE FUNCTION {schema}.is_there(whom bytea, asked_us bigint, now_us bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.clients;
BEGIN
  SELECT * INTO c FROM {schema}.clients k WHERE k.client = whom;
  IF c.by_mail THEN
    RETURN greatest(c.seen_us, asked_us) > now_us - {silence_us};
  END IF;
  RETURN NOT pg_try_advisory_xact_lock({listener_class}, {schema}.key_of(whom));
END $$;

-- Tells those who watch what happened to a lock: q queued, g granted, r released, a abandoned,
-- e expired, v revoked. A transaction's equal messages become one, so each has a number.
CREATE OR REPLACE FUNCTION {schema}.note(
  kind text, lock_name text, fence bigint, holder uuid, now_us bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  message text;
BEGIN
  IF (SELECT s.watched_us FROM {schema}.store s) <= now_us THEN
    RETURN;
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
END $$;
