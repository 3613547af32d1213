-- Makes a connection known, in the place of the client's earlier ones. It waits for a call that is
-- still under way there, so that afterwards nothing of it can take effect. Answers the channel of
-- events.
CREATE OR REPLACE FUNCTION {schema}.enrol(
  who bytea, via bigint, mail boolean, its_channel text, its_presence bigint, its_program text,
  its_host text, its_pid bigint, its_label text
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  watched bigint;
  events text;
BEGIN
  -- The store's row comes first wherever both are locked.
  SELECT s.watched_us, s.events INTO watched, events FROM {schema}.store s FOR SHARE;
  PERFORM FROM {schema}.clients c WHERE c.client = who FOR UPDATE;
  INSERT INTO {schema}.clients AS c
      (client, link, by_mail, channel, presence, program, host, pid, label, seen_us, watched_us)
    VALUES (who, via, mail, its_channel, its_presence, its_program, its_host, its_pid, its_label,
      {schema}.clock(), watched)
    ON CONFLICT (client) DO UPDATE SET link = excluded.link, by_mail = excluded.by_mail,
      channel = excluded.channel, presence = excluded.presence, seen_us = excluded.seen_us,
      watched_us = excluded.watched_us;
  RETURN events;
END $$;

-- Takes a client's mail, in order. That it does so is noted now and then.
CREATE OR REPLACE FUNCTION {schema}.collect(who bytea, via bigint) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE {schema}.clients c SET seen_us = {schema}.clock()
    WHERE c.client = who AND c.link = via AND c.seen_us < {schema}.clock() - {silence_us} / 4;
  WITH taken AS (
    DELETE FROM {schema}.mail m WHERE m.client = who
      AND EXISTS (SELECT FROM {schema}.clients c WHERE c.client = who AND c.link = via)
      RETURNING m.seq, m.message
  )
  SELECT t.message FROM taken t ORDER BY t.seq
$$;

-- A client wants to hear of events for another while.
CREATE OR REPLACE FUNCTION {schema}.watch(who bytea, via bigint, for_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  until_us bigint := {schema}.clock() + for_us;
BEGIN
  UPDATE {schema}.store s SET watched_us = greatest(s.watched_us, until_us);
  UPDATE {schema}.clients c SET watches_us = until_us WHERE c.client = who AND c.link = via;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  UPDATE {schema}.clients c SET watched_us = until_us WHERE c.watched_us < until_us;
END $$;
