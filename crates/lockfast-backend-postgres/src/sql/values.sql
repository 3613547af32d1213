-- Values, one row each. A version is the id of the write that it comes from.
CREATE TABLE IF NOT EXISTS {schema}.values (
  name text COLLATE "C" PRIMARY KEY,
  version bytea NOT NULL,
  bytes bytea NOT NULL,
  -- From then on it is as if there were none, though the row may still be there; NULL for never.
  until_us bigint,
  CONSTRAINT values_possible CHECK (octet_length(version) = 16 AND octet_length(bytes) <= 65536)
);
CREATE INDEX IF NOT EXISTS values_that_end ON {schema}.values (until_us)
  WHERE until_us IS NOT NULL;

-- A value and how much longer it is kept; no row if there is none. The clock is read first: what
-- was written after that is seen, so that nothing seems to have ended that was written again.
CREATE OR REPLACE FUNCTION {schema}.read_value(value_name text)
RETURNS TABLE (version bytea, bytes bytea, left_us bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now_us bigint := {schema}.clock();
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'values need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  -- A standby may lack what was written, and a pooler may have been led to one.
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'a standby does not tell values' USING ERRCODE = '25006';
  END IF;
  RETURN QUERY SELECT v.version, v.bytes, v.until_us - now_us FROM {schema}.values v
    WHERE v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
END $$;

-- Compares and writes under the lock of the row. What is expected is a version, or NULL for no value;
-- what is put is NULL for a removal. Answers 1 written, now or by an earlier try, or 0 and what is
-- there. Like a grant it is refused to a connection that was given up: otherwise a late one could
-- bring back what was removed since.
CREATE OR REPLACE FUNCTION {schema}.write_value(
  who bytea, via bigint, value_name text, expected bytea, own bytea, put bytea, keep_us bigint,
  OUT code smallint, OUT version bytea, OUT bytes bytea, OUT left_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  now_us bigint := {schema}.clock();
  is_watched boolean;
  present_link bigint;
  v {schema}.values;
  is_row boolean;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'values need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  SELECT c.watched_us > now_us, c.link INTO is_watched, present_link
    FROM {schema}.clients c WHERE c.client = who FOR KEY SHARE;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  LOOP
    SELECT * INTO v FROM {schema}.values k WHERE k.name = value_name FOR UPDATE;
    is_row := FOUND;
    now_us := {schema}.clock();
    code := CASE WHEN v.version = own THEN 1 ELSE 0 END;
    IF code = 1 THEN
      RETURN;
    ELSIF v.until_us <= now_us THEN
      v := NULL;
    END IF;
    IF v.version IS DISTINCT FROM expected THEN
      version := v.version; bytes := v.bytes; left_us := v.until_us - now_us;
      RETURN;
    END IF;
    IF is_row AND put IS NULL THEN
      DELETE FROM {schema}.values k WHERE k.name = value_name;
    ELSIF is_row THEN
      UPDATE {schema}.values k SET version = own, bytes = put,
        until_us = now_us + keep_us WHERE k.name = value_name;
    ELSIF put IS NOT NULL THEN
      INSERT INTO {schema}.values (name, version, bytes, until_us)
        VALUES (value_name, own, put, now_us + keep_us) ON CONFLICT DO NOTHING;
      -- Somebody else was the first.
      CONTINUE WHEN NOT FOUND;
    END IF;
    EXIT;
  END LOOP;
  code := 1;
  IF is_watched THEN
    PERFORM {schema}.note('c', value_name, NULL, {schema}.first_of(who), now_us);
  END IF;
END $$;
