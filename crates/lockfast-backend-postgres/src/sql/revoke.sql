-- Takes a lock away from all who have it, tells them, and lets the next in. Answers 0 nobody has
-- it, 1 taken from these, 2 they have another fence; and the lock as it was before.
CREATE OR REPLACE FUNCTION {schema}.revoke(
  lock_name text, expected bigint, given_reason text, OUT code smallint, OUT seen text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  l {schema}.locks;
  c {schema}.claims;
  whose {schema}.clients;
  now_us bigint;
  is_told boolean;
  settled record;
BEGIN
  code := 0;
  LOOP
    SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
    now_us := {schema}.clock();
    IF l.name IS NOT NULL THEN
      settled := {schema}.settle(l, now_us, NULL, NULL, false);
      l := settled.l;
      IF settled.owes THEN
        is_told := {schema}.push(ARRAY[lock_name]);
      END IF;
    END IF;
    seen := {schema}.view(lock_name, now_us);
    -- A lock that was made since the first step is seen now, and is to be locked first.
    EXIT WHEN l.name IS NOT NULL OR strpos(seen, E'\n') = 0;
  END LOOP;
  -- The first line tells how many wait.
  IF strpos(seen, E'\n') = 0 THEN
    RETURN;
  END IF;
  IF expected IS NOT NULL AND NOT (l.holder IS NOT NULL AND l.fence = expected)
    AND NOT EXISTS (SELECT FROM {schema}.claims k
      WHERE k.name = lock_name AND k.stage = 1 AND k.fence = expected)
  THEN
    code := 2;
    RETURN;
  END IF;
  code := 1;
  IF l.holder IS NOT NULL THEN
    INSERT INTO {schema}.claims (name, holder, stage, mode, call, ttl_us, delay_us, seen_us, fence,
        until_us, since_us)
      VALUES (lock_name, l.holder, 1, 0, 0, 0, 0, now_us, l.fence, l.until_us, l.since_us);
    l.crowd := l.crowd + 1;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  END IF;
  FOR c IN UPDATE {schema}.claims k SET stage = 2, reason = given_reason
    WHERE k.name = lock_name AND k.stage = 1 RETURNING *
  LOOP
    SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
    is_told := {schema}.note('v', lock_name, c.fence, c.holder, now_us);
    is_told := {schema}.tell(whose, 'R');
  END LOOP;
  settled := {schema}.settle(l, now_us, NULL, NULL, false);
  IF settled.owes THEN
    is_told := {schema}.push(ARRAY[lock_name]);
  END IF;
END $$;

-- What was taken away from a client, for the client itself: only it knows its link.
CREATE OR REPLACE FUNCTION {schema}.revoked(who bytea, via bigint)
RETURNS TABLE (holder uuid, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.holder, k.reason FROM {schema}.claims k
    WHERE k.stage = 2 AND {schema}.client_of(k.holder) = who
      AND EXISTS (SELECT FROM {schema}.clients c WHERE c.client = who AND c.link = via)
$$;
