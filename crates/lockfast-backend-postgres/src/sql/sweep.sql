-- Brings a lock up to date: ends what has ended and lets the next in.
CREATE OR REPLACE FUNCTION {schema}.refresh(lock_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
  settled record;
BEGIN
  -- A row that somebody has is being looked after; whoever has locked others must not wait.
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  settled := {schema}.settle(l, {schema}.clock(), NULL, NULL, false);
  RETURN settled.owes AND {schema}.push(ARRAY[lock_name]);
END $$;

-- Passes over what a client waits for that is not there any more.
CREATE OR REPLACE FUNCTION {schema}.miss(gone bytea, now_us bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  lock_name text;
  l {schema}.locks;
  settled record;
BEGIN
  FOR lock_name IN SELECT DISTINCT c.name FROM {schema}.claims c WHERE c.stage = 0
    AND c.holder BETWEEN {schema}.first_of(gone) AND {schema}.last_of(gone) ORDER BY 1
  LOOP
    SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    l := {schema}.pass_over(l, gone, now_us);
    UPDATE {schema}.locks k SET passed_us = l.passed_us WHERE k.name = lock_name;
  END LOOP;
  RETURN true;
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
  -- One at a time is enough. The store's row comes first wherever others are locked too.
  PERFORM FROM {schema}.store s FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    UPDATE {schema}.clients c SET seen_us = now_us
      WHERE c.client = who AND c.seen_us < now_us - 3600000000;
    RETURN 0;
  END IF;
  DELETE FROM {schema}.mail m WHERE m.sent_us < now_us - 60000000;
  PERFORM {schema}.miss(q.client, now_us) FROM (
      SELECT {schema}.client_of(c.holder) AS client, max(c.seen_us) AS seen_us
        FROM {schema}.claims c WHERE c.stage = 0 GROUP BY 1
    ) q LEFT JOIN {schema}.clients c ON c.client = q.client
    WHERE NOT {schema}.is_there(c, q.seen_us, now_us);
  FOR idle IN
    SELECT c.name FROM {schema}.claims c WHERE c.stage > 0 AND c.until_us <= now_us
    UNION
    SELECT l.name FROM {schema}.locks l WHERE l.passed_us BETWEEN 1 AND now_us
    ORDER BY 1 LIMIT 1000
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
  -- Last, so that whoever writes one of these waits for nothing but the commit.
  DELETE FROM {schema}.values d WHERE d.name IN (
    SELECT v.name FROM {schema}.values v WHERE v.until_us <= now_us
      LIMIT 10000 FOR UPDATE SKIP LOCKED);
  RETURN count;
END $$;
