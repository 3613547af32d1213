-- One release that is not simply of a lock that nobody else wants. Answers 1 released, 0 the
-- holder did not have it.
CREATE OR REPLACE FUNCTION {schema}.release(
  lock_name text, me uuid, is_watched boolean, OUT code smallint, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
  c {schema}.claims;
  now_us bigint;
  is_told boolean;
  is_alone boolean := false;
  settled record;
BEGIN
  code := 0;
  owes := false;
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  now_us := {schema}.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    code := 1;
    is_alone := true;
    IF is_watched THEN
      is_told := {schema}.note('r', lock_name, l.fence, me, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM {schema}.claims k WHERE k.name = lock_name AND k.holder = me;
    IF FOUND AND (c.stage <= 0 OR c.until_us > now_us) THEN
      DELETE FROM {schema}.claims d WHERE d.name = lock_name AND d.holder = me;
      l.crowd := l.crowd - 1;
      code := CASE WHEN c.stage = 1 THEN 1 ELSE 0 END;
      IF c.stage < 2 THEN
        is_told := {schema}.note(CASE WHEN c.stage = 1 THEN 'r' ELSE 'a' END, lock_name, c.fence, me,
          now_us);
      END IF;
    END IF;
  END IF;
  settled := {schema}.settle(l, now_us, NULL, NULL, is_alone);
  owes := settled.owes;
END $$;
