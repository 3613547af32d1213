-- One lock as people may see it: how many wait (and are still there), then a line for each holder with its mode, fence,
-- since when, how much longer, and whose it is. No holder's id is part of it.
CREATE OR REPLACE FUNCTION {schema}.view(lock_name text, now_us bigint) RETURNS text
LANGUAGE sql VOLATILE AS $$
  SELECT concat_ws(E'\n',
    (SELECT coalesce(sum(w.number), 0) FROM (
        SELECT {schema}.client_of(k.holder) AS client, count(*) AS number, max(k.seen_us) AS seen_us
          FROM {schema}.claims k WHERE k.name = lock_name AND k.stage <= 0 GROUP BY 1
      ) w JOIN {schema}.clients c ON c.client = w.client
      WHERE {schema}.is_there(c, w.seen_us, now_us))::text,
    (SELECT string_agg(concat_ws(E'\t', h.mode, h.fence, h.since_us, h.until_us - now_us,
        coalesce(c.program, ''), coalesce(c.host, ''), coalesce(c.pid, 0), coalesce(c.label, '')),
        E'\n' ORDER BY h.fence)
      FROM (
        SELECT 0 AS mode, l.fence, l.since_us, l.until_us, l.holder FROM {schema}.locks l
          WHERE l.name = lock_name AND l.holder IS NOT NULL AND l.until_us > now_us
        UNION ALL
        SELECT g.mode, g.fence, g.since_us, g.until_us, g.holder FROM {schema}.claims g
          WHERE g.name = lock_name AND g.stage = 1 AND g.until_us > now_us
      ) h LEFT JOIN {schema}.clients c ON c.client = {schema}.client_of(h.holder)))
$$;

-- One lock.
CREATE OR REPLACE FUNCTION {schema}.inspect(lock_name text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT {schema}.view(lock_name, {schema}.clock()) $$;

-- The locks that are held or waited for and whose names start with `prefix`, in order.
CREATE OR REPLACE FUNCTION {schema}.list(prefix text, after text, at_most bigint)
RETURNS TABLE (name text, seen text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  now_us bigint := {schema}.clock();
  found bigint := 0;
BEGIN
  FOR name IN SELECT l.name FROM {schema}.locks l
    WHERE l.name >= prefix COLLATE "C" AND (after IS NULL OR l.name > after COLLATE "C")
      AND (l.crowd > 0 OR (l.holder IS NOT NULL AND l.until_us > now_us))
    ORDER BY l.name
  LOOP
    EXIT WHEN found >= at_most OR NOT starts_with(name, prefix);
    seen := {schema}.view(name, now_us);
    IF seen <> '0' THEN
      found := found + 1;
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;
