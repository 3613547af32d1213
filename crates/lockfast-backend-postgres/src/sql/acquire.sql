-- One acquisition that is not simply of a free lock to be held alone. Answers a code:
--   1 granted (number: its fence)
--   2, 3 waiting as the head of the queue or behind it (number: how long what blocks it lasts)
--   4 taken (note: the lock as it is)
--   5 the name is in use in mode `number`, 6 the holder asked for it in mode `number`
--   7 it was revoked (note: the reason), 8 the floor is too far ahead, 9 no fence is left
CREATE OR REPLACE FUNCTION {schema}.acquire(
  lock_name text, me uuid, how integer, ttl_us bigint, delay_us bigint, least_fence bigint,
  call bigint, may_wait boolean, is_watched boolean,
  OUT code smallint, OUT number bigint, OUT note text, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
  c {schema}.claims;
  now_us bigint;
  is_known boolean := false;
  is_told boolean;
  is_first boolean;
  settled record;
  entry record;
BEGIN
  owes := false;
  l := {schema}.lock_row(lock_name);
  now_us := {schema}.clock();
  IF l.passed_us > 0 THEN
    l := {schema}.welcome(l, me, now_us);
  END IF;
  IF (CASE WHEN l.holder IS NULL THEN l.crowd > 0 ELSE l.until_us <= now_us END) THEN
    settled := {schema}.settle(l, now_us, me, how, false);
    l := settled.l; owes := settled.owes;
  END IF;
  IF l.holder = me THEN
    IF how <> 0 THEN
      code := 6; number := 0;
      RETURN;
    END IF;
    UPDATE {schema}.locks k SET until_us = now_us + ttl_us + delay_us, offer = false
      WHERE k.name = lock_name;
    code := 1; number := l.fence;
    RETURN;
  END IF;
  IF l.crowd > 0 THEN
    SELECT * INTO c FROM {schema}.claims k WHERE k.name = lock_name AND k.holder = me;
    is_known := FOUND;
  END IF;
  IF is_known THEN
    IF c.stage = 2 THEN
      code := 7; note := c.reason;
    ELSIF c.mode <> how THEN
      code := 6; number := c.mode;
    ELSIF c.stage = 1 THEN
      UPDATE {schema}.claims k SET until_us = now_us + acquire.ttl_us + acquire.delay_us,
        offer = false WHERE k.name = lock_name AND k.holder = me;
      code := 1; number := c.fence;
    ELSIF may_wait THEN
      UPDATE {schema}.claims k SET ttl_us = acquire.ttl_us, delay_us = acquire.delay_us,
        call = acquire.call, seen_us = now_us WHERE k.name = lock_name AND k.holder = me;
    END IF;
    IF code IS NOT NULL THEN
      RETURN;
    END IF;
    is_first := NOT EXISTS (SELECT FROM {schema}.claims k
      WHERE k.name = lock_name AND k.stage = 0 AND k.ticket < c.ticket);
  ELSE
    entry := {schema}.enter(l, me, how, ttl_us, delay_us, least_fence, call, may_wait, is_watched,
      now_us);
    code := entry.code; number := entry.number; is_first := entry.is_first;
    IF code IS NOT NULL THEN
      RETURN;
    END IF;
  END IF;
  IF may_wait THEN
    code := CASE WHEN is_first THEN 2 ELSE 3 END;
    number := {schema}.blocked_us(l, now_us);
    RETURN;
  END IF;
  IF is_known THEN
    DELETE FROM {schema}.claims d WHERE d.name = lock_name AND d.holder = me;
    l.crowd := l.crowd - 1;
    is_told := {schema}.note('a', lock_name, NULL, me, now_us);
    settled := {schema}.settle(l, now_us, NULL, NULL, false);
    owes := owes OR settled.owes;
  END IF;
  code := 4;
  note := {schema}.view(lock_name, now_us);
END $$;

-- A new claim: granted at once if nobody waits and the rule holds, else it stands in line if it
-- may. Answers a code as above, or none when it has to wait or to go. Nothing here goes through the
-- line.
CREATE OR REPLACE FUNCTION {schema}.enter(
  l {schema}.locks, me uuid, how integer, ttl_us bigint, delay_us bigint, least_fence bigint,
  call bigint, may_wait boolean, is_watched boolean, now_us bigint,
  OUT code smallint, OUT number bigint, OUT is_first boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  granted bigint := 0;
  in_use integer;
  is_granted boolean;
  is_told boolean;
BEGIN
  IF least_fence > now_us + 60000000 THEN
    code := 8;
    RETURN;
  END IF;
  is_first := true;
  IF l.crowd > 0 THEN
    IF how <> 0 THEN
      SELECT k.mode INTO in_use FROM {schema}.claims k
        WHERE k.name = l.name AND k.mode <> 0 AND k.stage < 2 LIMIT 1;
      IF in_use <> how THEN
        code := 5; number := in_use;
        RETURN;
      END IF;
    END IF;
    is_first := NOT EXISTS (SELECT FROM {schema}.claims k WHERE k.name = l.name AND k.stage = 0);
    IF l.holder IS NULL AND is_first THEN
      granted := (SELECT count(*) FROM {schema}.claims k WHERE k.name = l.name AND k.stage = 1);
    END IF;
  END IF;
  is_granted := l.holder IS NULL AND is_first
    AND CASE WHEN how = 0 THEN granted = 0 WHEN how > 0 THEN granted < how ELSE true END;
  IF is_granted THEN
    number := greatest(l.fence + 1, now_us, least_fence + 1);
    IF number >= 9007199254740992 THEN
      code := 9; number := NULL;
      RETURN;
    END IF;
    code := 1;
  ELSIF NOT may_wait THEN
    RETURN;
  END IF;
  IF is_granted AND how = 0 THEN
    UPDATE {schema}.locks k SET fence = number, holder = me, since_us = now_us, offer = false,
      until_us = now_us + enter.ttl_us + enter.delay_us WHERE k.name = l.name;
  ELSE
    INSERT INTO {schema}.claims (name, holder, stage, mode, call, ttl_us, delay_us, floor, seen_us,
        fence, until_us, since_us)
      VALUES (l.name, me, CASE WHEN is_granted THEN 1 ELSE 0 END, how, call, ttl_us, delay_us,
        least_fence, now_us, number, now_us + enter.ttl_us + enter.delay_us, now_us);
    UPDATE {schema}.locks k SET crowd = k.crowd + 1, fence = greatest(k.fence, number)
      WHERE k.name = l.name;
  END IF;
  IF is_watched THEN
    is_told := {schema}.note(CASE WHEN is_granted THEN 'g' ELSE 'q' END, l.name, number, me,
      now_us);
  END IF;
END $$;
