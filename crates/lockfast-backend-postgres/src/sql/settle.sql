-- Ends what has ended by itself, then grants every waiting claim whose turn it is, in order:
--   exclusive  nothing is ahead
--   shared     nothing exclusive is ahead
--   permit     fewer than its number are ahead, none of them exclusive
-- The first claim that has to wait ends the walk, so nobody overtakes. Only the head of the line is
-- looked at, so that its length does not matter.
--
-- `l` is the lock's row, which the caller has locked; it is written back. A claim of `me` with
-- mode `how` is answered directly and gets its whole ttl; others get an offer, which is short, so
-- that a process that hangs does not hold up those behind it. `owes` says that there was one, so
-- that `push` is called for the lock. `is_alone` says that nobody shares the lock, as after the end
-- of an exclusive hold.
CREATE OR REPLACE FUNCTION {schema}.settle(
  INOUT l {schema}.locks, now_us bigint, me uuid, how integer, is_alone boolean, OUT owes boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.claims;
  whose {schema}.clients;
  ahead bigint := 0;
  has_ended boolean;
  is_told boolean;
  number bigint;
  lasts_us bigint;
  is_mine boolean;
BEGIN
  owes := false;
  IF l.holder IS NOT NULL AND l.until_us <= now_us THEN
    is_told := {schema}.note('e', l.name, l.fence, l.holder, now_us);
    IF l.offer AND l.crowd > 0 THEN
      l := {schema}.pass_over(l, {schema}.client_of(l.holder), now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
    is_alone := true;
  END IF;
  IF l.crowd > 0 THEN
    IF l.passed_us > 0 AND l.passed_us <= now_us THEN
      l := {schema}.drop_gone(l, now_us);
    END IF;
    IF NOT is_alone THEN
      SELECT count(*) FILTER (WHERE g.stage = 1), bool_or(g.until_us <= now_us)
        INTO ahead, has_ended FROM {schema}.claims g WHERE g.name = l.name AND g.stage > 0;
    END IF;
    IF has_ended THEN
      l := {schema}.drop_ended(l, now_us);
      ahead := (SELECT count(*) FROM {schema}.claims g WHERE g.name = l.name AND g.stage = 1);
    END IF;
    WHILE l.holder IS NULL LOOP
      SELECT * INTO c FROM {schema}.claims w
        WHERE w.name = l.name AND w.stage = 0 ORDER BY w.ticket LIMIT 1;
      number := greatest(l.fence + 1, now_us, c.floor + 1);
      EXIT WHEN c.holder IS NULL OR (c.mode = 0 AND ahead > 0) OR (c.mode > 0 AND ahead >= c.mode)
        OR number >= 9007199254740992;
      is_mine := me IS NOT NULL AND c.holder = me AND c.mode = how;
      SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
      IF NOT is_mine AND NOT {schema}.is_there(whose, c.seen_us, now_us) THEN
        l := {schema}.pass_over(l, {schema}.client_of(c.holder), now_us);
        CONTINUE;
      END IF;
      lasts_us := CASE WHEN is_mine THEN c.ttl_us ELSE least(c.ttl_us, {offer_us}) END;
      l.fence := number;
      IF c.mode = 0 THEN
        DELETE FROM {schema}.claims d WHERE d.name = c.name AND d.holder = c.holder;
        l.crowd := l.crowd - 1;
        l.holder := c.holder;
        l.until_us := now_us + lasts_us + c.delay_us;
        l.since_us := now_us;
        l.offer := NOT is_mine;
        l.call := c.call;
        l.lasts_us := lasts_us;
      ELSE
        UPDATE {schema}.claims g SET stage = 1, fence = number, since_us = now_us,
          until_us = now_us + lasts_us + c.delay_us, offer = NOT is_mine
          WHERE g.name = c.name AND g.holder = c.holder;
        ahead := ahead + 1;
      END IF;
      IF coalesce(whose.watched_us > now_us, true) THEN
        is_told := {schema}.note('g', l.name, number, c.holder, now_us);
      END IF;
      owes := owes OR NOT is_mine;
    END LOOP;
  END IF;
  UPDATE {schema}.locks k SET fence = l.fence, holder = l.holder, until_us = l.until_us,
    since_us = l.since_us, offer = l.offer, crowd = l.crowd, call = l.call, lasts_us = l.lasts_us,
    passed_us = l.passed_us
    WHERE k.name = l.name;
END $$;

-- Removes claims whose time is up: leases, and what is left of revoked ones.
CREATE OR REPLACE FUNCTION {schema}.drop_ended(INOUT l {schema}.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.claims;
  is_told boolean;
BEGIN
  FOR c IN DELETE FROM {schema}.claims d
    WHERE d.name = l.name AND d.stage > 0 AND d.until_us <= now_us RETURNING *
  LOOP
    l.crowd := l.crowd - 1;
    IF c.stage = 1 THEN
      is_told := {schema}.note('e', l.name, c.fence, c.holder, now_us);
      IF c.offer THEN
        l := {schema}.pass_over(l, {schema}.client_of(c.holder), now_us);
      END IF;
    END IF;
  END LOOP;
END $$;

-- A client did not answer to an offer, or is not there: whatever it waits for here is passed over
-- until it is heard of. That costs a change of each of its claims, once. It is told to look, which
-- it does at once if it was only slow.
CREATE OR REPLACE FUNCTION {schema}.pass_over(INOUT l {schema}.locks, silent bytea, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  whose {schema}.clients;
  first_call bigint;
  is_told boolean;
BEGIN
  WITH passed AS (
    UPDATE {schema}.claims p SET stage = -1 WHERE p.name = l.name AND p.stage + 0 = 0
      AND p.holder BETWEEN {schema}.first_of(silent) AND {schema}.last_of(silent)
      RETURNING p.call
  )
  SELECT min(p.call) INTO first_call FROM passed p;
  IF first_call IS NULL THEN
    RETURN;
  END IF;
  IF l.passed_us = 0 THEN
    l.passed_us := now_us + {patience_us};
  END IF;
  SELECT * INTO whose FROM {schema}.clients w WHERE w.client = silent;
  is_told := {schema}.tell(whose, concat_ws(' ', 'H', first_call, 0));
END $$;

-- The client of `me` is heard of again: what was passed over takes its old places.
CREATE OR REPLACE FUNCTION {schema}.welcome(INOUT l {schema}.locks, me uuid, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  client bytea := {schema}.client_of(me);
BEGIN
  UPDATE {schema}.claims p SET stage = 0, seen_us = now_us WHERE p.name = l.name AND p.stage = -1
    AND p.holder BETWEEN {schema}.first_of(client) AND {schema}.last_of(client);
  IF FOUND AND NOT EXISTS (SELECT FROM {schema}.claims p WHERE p.name = l.name AND p.stage = -1)
  THEN
    l.passed_us := 0;
    UPDATE {schema}.locks k SET passed_us = 0 WHERE k.name = l.name;
  END IF;
END $$;

-- Removes what was passed over of clients that are still not there.
CREATE OR REPLACE FUNCTION {schema}.drop_gone(INOUT l {schema}.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone bytea;
  left_by uuid;
  is_told boolean;
BEGIN
  FOR gone IN
    SELECT q.client FROM (
        SELECT {schema}.client_of(p.holder) AS client, max(p.seen_us) AS seen_us
          FROM {schema}.claims p WHERE p.name = l.name AND p.stage = -1 GROUP BY 1
      ) q LEFT JOIN {schema}.clients c ON c.client = q.client
      WHERE NOT {schema}.is_there(c, q.seen_us, now_us)
  LOOP
    FOR left_by IN DELETE FROM {schema}.claims d WHERE d.name = l.name AND d.stage = -1
      AND d.holder BETWEEN {schema}.first_of(gone) AND {schema}.last_of(gone) RETURNING d.holder
    LOOP
      l.crowd := l.crowd - 1;
      is_told := {schema}.note('a', l.name, NULL, left_by, now_us);
    END LOOP;
  END LOOP;
  l.passed_us := CASE
    WHEN EXISTS (SELECT FROM {schema}.claims p WHERE p.name = l.name AND p.stage = -1)
    THEN now_us + {patience_us} ELSE 0 END;
END $$;

-- How long what is in the way of the next claim lasts if nobody does anything.
CREATE OR REPLACE FUNCTION {schema}.blocked_us(l {schema}.locks, now_us bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF l.holder IS NOT NULL THEN
    RETURN greatest(l.until_us - now_us, 0);
  END IF;
  RETURN (SELECT greatest(min(g.until_us) - now_us, 0) FROM {schema}.claims g
    WHERE g.name = l.name AND g.stage = 1);
END $$;

-- Locks the row of a lock, which is made if need be.
CREATE OR REPLACE FUNCTION {schema}.lock_row(lock_name text, OUT l {schema}.locks)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  LOOP
    SELECT * INTO l FROM {schema}.locks k WHERE k.name = lock_name FOR UPDATE;
    EXIT WHEN l.fence > 0;
    IF l.name IS NULL THEN
      INSERT INTO {schema}.locks (name, fence, until_us, since_us) VALUES (lock_name, 0, 0, 0)
        ON CONFLICT DO NOTHING;
      CONTINUE WHEN NOT FOUND;
    END IF;
    -- The floor is read after the row was made, so it is not older than the deletion of an earlier
    -- row, however long any of this takes.
    UPDATE {schema}.locks k SET fence = greatest(s.floor, 1) FROM {schema}.store s
      WHERE k.name = lock_name;
  END LOOP;
END $$;
