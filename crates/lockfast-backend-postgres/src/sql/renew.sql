-- One renewal that is not simply of a lock held alone. Never creates. Answers 1 renewed, 0 the
-- lease is not known, 2 it was revoked (note: the reason), 3 another has it (note: who).
CREATE OR REPLACE FUNCTION {schema}.renew(
  lock_name text, me uuid, ttl_us bigint, delay_us bigint, OUT code smallint, OUT note text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
  c {schema}.claims;
  now_us bigint;
  before_us bigint;
  is_told boolean;
BEGIN
  code := 0;
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  now_us := {schema}.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    before_us := l.until_us;
    l.until_us := now_us + ttl_us + delay_us;
    UPDATE {schema}.locks k SET until_us = l.until_us, offer = false WHERE k.name = lock_name;
    code := 1;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM {schema}.claims k
      WHERE k.name = lock_name AND k.holder = me AND k.stage = 1 AND k.until_us > now_us;
    IF FOUND THEN
      before_us := c.until_us;
      UPDATE {schema}.claims k SET until_us = now_us + renew.ttl_us + renew.delay_us,
        offer = false WHERE k.name = lock_name AND k.holder = me;
      code := 1;
    END IF;
  END IF;
  IF code = 0 THEN
    SELECT w.code, w.note INTO code, note FROM {schema}.why_lost(l, me, now_us) w;
  -- Whoever waits counts on the old end, and somebody must look sooner.
  ELSIF before_us > now_us + ttl_us + delay_us AND l.crowd > 0 THEN
    is_told := {schema}.tell_other(lock_name, NULL, ttl_us + delay_us, now_us);
  END IF;
END $$;

-- Why a holder does not have the lock: 0 it is not known, 2 it was taken away (note: the reason),
-- 3 another has it (note: who).
CREATE OR REPLACE FUNCTION {schema}.why_lost(
  l {schema}.locks, me uuid, now_us bigint, OUT code smallint, OUT note text
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  other uuid;
BEGIN
  SELECT k.reason INTO note FROM {schema}.claims k
    WHERE k.name = l.name AND k.holder = me AND k.stage = 2 AND k.until_us > now_us;
  IF FOUND THEN
    code := 2;
    RETURN;
  END IF;
  SELECT h.holder INTO other FROM (
      SELECT l.holder AS holder WHERE l.holder IS NOT NULL AND l.until_us > now_us
      UNION ALL
      SELECT k.holder FROM {schema}.claims k
        WHERE k.name = l.name AND k.stage = 1 AND k.until_us > now_us
    ) h LIMIT 1;
  code := CASE WHEN FOUND THEN 3 ELSE 0 END;
  SELECT concat_ws(E'\t', k.program, k.host, k.pid, coalesce(k.label, '')) INTO note
    FROM {schema}.clients k WHERE k.client = {schema}.client_of(other);
END $$;
