-- Lets a writer go on as a reader: its place moves from the lock's row to a claim, with the same fence
-- and the same end, and whoever that lets in is granted the lock as after a release. Answers 1 it has
-- the lock shared, now or by an earlier try, 5 the name is in use in mode `number`, or as a renewal
-- why it does not have it. Like a release it does nothing for a connection that was given up.
CREATE OR REPLACE FUNCTION {schema}.downgrade(
  who bytea, via bigint, lock_name text, me uuid,
  OUT code smallint, OUT number integer, OUT note text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  present_link bigint;
  l {schema}.locks;
  now_us bigint;
  is_told boolean;
  settled record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  SELECT c.link INTO present_link FROM {schema}.clients c WHERE c.client = who FOR KEY SHARE;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  code := 0;
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  now_us := {schema}.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    SELECT k.mode INTO number FROM {schema}.claims k
      WHERE k.name = lock_name AND k.mode > 0 AND k.stage < 2 LIMIT 1;
    IF FOUND THEN
      code := 5;
      RETURN;
    END IF;
    code := 1;
    -- It was heard of, so it is no offer any more; that does not make it last longer.
    INSERT INTO {schema}.claims (name, holder, stage, mode, call, ttl_us, delay_us, seen_us, fence,
        until_us, since_us)
      VALUES (lock_name, me, 1, -1, 0, 0, 0, now_us, l.fence, l.until_us, l.since_us);
    l.crowd := l.crowd + 1;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
    settled := {schema}.settle(l, now_us, NULL, NULL, false);
    IF settled.owes THEN
      is_told := {schema}.push(ARRAY[lock_name]);
    END IF;
    RETURN;
  END IF;
  SELECT k.mode INTO number FROM {schema}.claims k
    WHERE k.name = lock_name AND k.holder = me AND k.stage = 1 AND k.until_us > now_us;
  IF FOUND THEN
    code := CASE WHEN number = -1 THEN 1 ELSE 5 END;
    RETURN;
  END IF;
  SELECT w.code, w.note INTO code, note FROM {schema}.why_lost(l, me, now_us) w;
END $$;
