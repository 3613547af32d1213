-- One release that is not simply of a lock that nobody else wants. Answers 1 released, 0 the
-- holder did not have it.
CREATE OR REPLACE FUNCTION {schema}.release(lock_name text, me uuid, is_watched boolean)
RETURNS smallint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l {schema}.locks;
  c {schema}.claims;
  now_us bigint;
  was_held boolean := false;
  was_head boolean := false;
  is_told boolean;
BEGIN
  SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  now_us := {schema}.clock();
  IF l.holder = me AND l.until_us > now_us THEN
    was_held := true;
    IF is_watched THEN
      is_told := {schema}.note('r', lock_name, l.fence, me, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    l.until_us := now_us;
  ELSIF l.crowd > 0 THEN
    SELECT * INTO c FROM {schema}.claims k WHERE k.name = lock_name AND k.holder = me;
    IF FOUND AND (c.stage = 0 OR c.until_us > now_us) THEN
      was_head := c.stage = 0 AND NOT EXISTS (SELECT FROM {schema}.claims k
        WHERE k.name = lock_name AND k.stage = 0 AND k.ticket < c.ticket);
      DELETE FROM {schema}.claims d WHERE d.name = lock_name AND d.holder = me;
      l.crowd := l.crowd - 1;
      was_held := c.stage = 1;
      IF c.stage < 2 THEN
        is_told := {schema}.note(CASE c.stage WHEN 0 THEN 'a' ELSE 'r' END, lock_name, c.fence, me,
          now_us);
      END IF;
    END IF;
  END IF;
  l := {schema}.settle(l, now_us, NULL, NULL, was_head);
  RETURN CASE WHEN was_held THEN 1 ELSE 0 END;
END $$;
