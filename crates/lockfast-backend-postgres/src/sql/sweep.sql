-- Brings a lock up to date: ends what has ended and lets the next in.
CREATE OR REPLACE FUNCTION {schema}.refresh(lock_name text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
BEGIN
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
  IF FOUND THEN
    PERFORM {schema}.settle(l, {schema}.clock(), NULL, NULL, false);
  END IF;
END $$;

-- Ends what has ended although nobody asked, for those who watch. Answers how many there were.
CREATE OR REPLACE FUNCTION {schema}.expire() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  now_us bigint := {schema}.clock();
  ended text;
  count bigint := 0;
BEGIN
  FOR ended IN
    SELECT l.name FROM {schema}.locks l WHERE l.holder IS NOT NULL AND l.until_us <= now_us
    UNION
    SELECT c.name FROM {schema}.claims c WHERE c.stage > 0 AND c.until_us <= now_us
    ORDER BY 1 LIMIT 1000
  LOOP
    PERFORM {schema}.refresh(ended);
    count := count + 1;
  END LOOP;
  RETURN count;
END $$;

-- Removes what nobody has used for `idle_us`. The floor is raised in the same step, so that a
-- lock whose row is made anew goes on with higher fences. Answers how many rows went.
CREATE OR REPLACE FUNCTION {schema}.sweep(who bytea, idle_us bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  now_us bigint := {schema}.clock();
  least_idle_us bigint := greatest(idle_us, {idle_us_min});
  idle text;
  highest bigint;
  count bigint;
BEGIN
  -- One at a time is enough.
  IF NOT pg_try_advisory_xact_lock({sweep_class}, 0) THEN
    UPDATE {schema}.clients c SET seen_us = now_us
      WHERE c.client = who AND c.seen_us < now_us - 3600000000;
    RETURN 0;
  END IF;
  DELETE FROM {schema}.mail m WHERE m.sent_us < now_us - 60000000;
  FOR idle IN SELECT DISTINCT c.name FROM {schema}.claims c
    WHERE CASE c.stage WHEN 0 THEN c.seen_us <= now_us - {patience_us} ELSE c.until_us <= now_us END
    ORDER BY c.name LIMIT 1000
  LOOP
    PERFORM {schema}.refresh(idle);
  END LOOP;
  WITH gone AS (
    DELETE FROM {schema}.locks d WHERE d.name IN (
      SELECT l.name FROM {schema}.locks l
        WHERE l.crowd = 0 AND l.until_us < now_us - least_idle_us
          AND NOT (starts_with(l.name, E'\x01') AND {schema}.is_advised(substr(l.name, 2)))
        LIMIT 10000 FOR UPDATE SKIP LOCKED)
    RETURNING d.fence
  )
  SELECT max(g.fence), count(*) INTO highest, count FROM gone g;
  UPDATE {schema}.store s SET floor = highest WHERE s.floor < highest;
  UPDATE {schema}.clients c SET seen_us = now_us
    WHERE c.client = who AND c.seen_us < now_us - 3600000000;
  DELETE FROM {schema}.clients c WHERE c.seen_us < now_us - 604800000000;
  RETURN count;
END $$;
