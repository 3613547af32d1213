-- For mode=advisory. The fence of an advisory lock, raised by whoever has just got the lock. It is
-- kept in a row whose name no lease can have.
CREATE OR REPLACE FUNCTION {schema}.raise_fence(lock_name text, least_fence bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  l {schema}.locks;
  now_us bigint;
BEGIN
  l := {schema}.lock_row(E'\x01' || lock_name);
  now_us := {schema}.clock();
  IF least_fence > now_us + 60000000 THEN
    RETURN NULL;
  END IF;
  UPDATE {schema}.locks k
    SET fence = greatest(l.fence + 1, now_us, least_fence + 1), until_us = now_us, since_us = now_us
    WHERE k.name = l.name RETURNING k.fence INTO l.fence;
  RETURN l.fence;
END $$;

-- The fence that was last given for an advisory lock.
CREATE OR REPLACE FUNCTION {schema}.last_fence(lock_name text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.fence FROM {schema}.locks l WHERE l.name = E'\x01' || lock_name
$$;

-- Names of advisory locks that were used lately.
CREATE OR REPLACE FUNCTION {schema}.advisory_names(prefix text, after text)
RETURNS SETOF text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT substr(l.name, 2) FROM {schema}.locks l
    WHERE starts_with(l.name, E'\x01' || prefix)
      AND (after IS NULL OR l.name > (E'\x01' || after) COLLATE "C")
    ORDER BY l.name
$$;

-- Whether somebody has the advisory lock of that name.
CREATE OR REPLACE FUNCTION {schema}.is_advised(lock_name text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM pg_locks p WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND (p.classid::bigint << 32) | p.objid::bigint
      = CASE WHEN lock_name ~ '^(0|-?[1-9][0-9]{0,17})$' THEN lock_name::bigint
        ELSE hashtextextended(lock_name, 0) END)
$$;
