-- Ends what has ended by itself, then grants every waiting claim whose turn it is, in order:
--   exclusive  nothing is ahead
--   shared     nothing exclusive is ahead
--   permit     fewer than its number are ahead, none of them exclusive
-- The first claim that has to wait ends the walk, so nobody overtakes.
--
-- `l` is the lock's row, which the caller has locked; it is written back. A claim of `me` with
-- mode `how` is answered directly and gets its whole ttl; others get an offer, which is short, so
-- that a process that hangs does not hold up those behind it. `moved` says that the queue's head
-- is new already, so that it must be told when to look by itself.
CREATE OR REPLACE FUNCTION {schema}.settle(
  INOUT l {schema}.locks, now_us bigint, me uuid, how integer, moved boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.claims;
  whose {schema}.clients;
  ahead bigint;
  has_ended boolean;
  is_told boolean;
  number bigint;
  lasts_us bigint;
  is_mine boolean;
BEGIN
  IF l.holder IS NOT NULL AND l.until_us <= now_us THEN
    is_told := {schema}.note('e', l.name, l.fence, l.holder, now_us);
    IF l.offer AND l.crowd > 0 THEN
      l := {schema}.drop_silent(l, l.holder, l.since_us, now_us);
    END IF;
    l.holder := NULL;
    l.offer := false;
  END IF;
  IF l.crowd > 0 THEN
    -- Whoever waits in vain is found when its turn comes, and by `sweep`.
    SELECT count(*) FILTER (WHERE g.stage = 1), bool_or(g.until_us <= now_us)
      INTO ahead, has_ended FROM {schema}.claims g WHERE g.name = l.name AND g.stage > 0;
    IF has_ended THEN
      l := {schema}.drop_ended(l, now_us);
      ahead := (SELECT count(*) FROM {schema}.claims g WHERE g.name = l.name AND g.stage = 1);
    END IF;
    FOR c IN SELECT * FROM {schema}.claims w
      WHERE w.name = l.name AND w.stage = 0 ORDER BY w.ticket
    LOOP
      is_mine := me IS NOT NULL AND c.holder = me AND c.mode = how;
      number := greatest(l.fence + 1, now_us, c.floor + 1);
      SELECT * INTO whose FROM {schema}.clients w WHERE w.client = {schema}.client_of(c.holder);
      IF c.seen_us <= now_us - {patience_us} AND NOT is_mine THEN
        moved := true;
        l := {schema}.drop_waiting(l, c.holder, now_us);
        CONTINUE;
      ELSIF l.holder IS NOT NULL OR (c.mode = 0 AND ahead > 0) OR (c.mode > 0 AND ahead >= c.mode)
        OR number >= 9007199254740992
      THEN
        IF moved AND NOT is_mine THEN
          is_told := {schema}.tell(whose,
            concat_ws(' ', 'H', c.call, {schema}.blocked_us(l, now_us)));
        END IF;
        EXIT;
      END IF;
      moved := true;
      IF NOT is_mine AND NOT {schema}.is_there(whose, c.seen_us, now_us) THEN
        l := {schema}.drop_waiting(l, c.holder, now_us);
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
      ELSE
        UPDATE {schema}.claims g SET stage = 1, fence = number, since_us = now_us,
          until_us = now_us + lasts_us + c.delay_us, offer = NOT is_mine
          WHERE g.name = c.name AND g.holder = c.holder;
        ahead := ahead + 1;
      END IF;
      IF coalesce(whose.watched_us > now_us, true) THEN
        is_told := {schema}.note('g', l.name, number, c.holder, now_us);
      END IF;
      IF NOT is_mine THEN
        is_told := {schema}.tell(whose, concat_ws(' ', 'G', c.call, number, now_us, lasts_us));
      END IF;
    END LOOP;
  END IF;
  UPDATE {schema}.locks k SET fence = l.fence, holder = l.holder, until_us = l.until_us,
    since_us = l.since_us, offer = l.offer, crowd = l.crowd
    WHERE k.name = l.name;
END $$;

-- Removes a claim that waits.
CREATE OR REPLACE FUNCTION {schema}.drop_waiting(
  INOUT l {schema}.locks, who uuid, now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  is_told boolean;
BEGIN
  DELETE FROM {schema}.claims d WHERE d.name = l.name AND d.holder = who;
  l.crowd := l.crowd - 1;
  is_told := {schema}.note('a', l.name, NULL, who, now_us);
END $$;

-- Removes claims whose time is up: leases, what is left of revoked ones, and waiting claims that
-- have not been heard of for long.
CREATE OR REPLACE FUNCTION {schema}.drop_ended(INOUT l {schema}.locks, now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c {schema}.claims;
  is_told boolean;
BEGIN
  FOR c IN DELETE FROM {schema}.claims d WHERE d.name = l.name
    AND CASE d.stage WHEN 0 THEN d.seen_us <= now_us - {patience_us} ELSE d.until_us <= now_us END
    RETURNING *
  LOOP
    l.crowd := l.crowd - 1;
    IF c.stage < 2 THEN
      is_told := {schema}.note(CASE c.stage WHEN 0 THEN 'a' ELSE 'e' END, l.name, c.fence, c.holder,
        now_us);
    END IF;
    IF c.stage = 1 AND c.offer THEN
      l := {schema}.drop_silent(l, c.holder, c.since_us, now_us);
    END IF;
  END LOOP;
END $$;

-- The client of `holder` did not answer to an offer made at `since_us`: what else it waits for
-- here would only hold up the others.
CREATE OR REPLACE FUNCTION {schema}.drop_silent(
  INOUT l {schema}.locks, silent uuid, since_us bigint, now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  waiting uuid;
BEGIN
  FOR waiting IN SELECT d.holder FROM {schema}.claims d WHERE d.name = l.name AND d.stage = 0
    AND d.seen_us < drop_silent.since_us
    AND {schema}.client_of(d.holder) = {schema}.client_of(silent)
  LOOP
    l := {schema}.drop_waiting(l, waiting, now_us);
  END LOOP;
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
    EXIT WHEN FOUND;
    -- The floor is read after the row was seen to be missing, so it is not older than the
    -- deletion of an earlier row.
    INSERT INTO {schema}.locks (name, fence, until_us, since_us)
      SELECT lock_name, s.floor, 0, 0 FROM {schema}.store s ON CONFLICT DO NOTHING;
  END LOOP;
END $$;
