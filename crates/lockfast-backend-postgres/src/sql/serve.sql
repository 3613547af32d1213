-- Everything that one process asks for at a time, in one call and so with one commit: kinds are
-- 1 acquire, 2 acquire or wait, 3 release, 4 renew. It comes in the order of the names, so that
-- two calls never wait for each other in a circle. Arrays that say nothing may be empty. Ten more
-- says that no other request of the call is for the same lock.
--
-- Each request is first tried in the form that is by far the most frequent, a lock that is held
-- alone and that nobody waits for, which costs one change of one row; where there are several,
-- all of them by one statement. Each statement sees what was committed before it began, also by
-- those it had to wait for.
CREATE OR REPLACE FUNCTION {schema}.serve(
  who bytea, via bigint,
  kinds smallint[], names text[], holders uuid[], ttls bigint[], delays bigint[], modes integer[],
  floors bigint[], calls bigint[],
  OUT codes smallint[], OUT numbers bigint[], OUT notes text[], OUT now_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '{lock_timeout}' AS $$
DECLARE
  is_watched boolean;
  present_link bigint;
  lease_us bigint;
  kind smallint;
  code smallint;
  number bigint;
  said text;
  event text;
  answer record;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared({link_class}, {schema}.key_of(who)) THEN
    RAISE EXCEPTION 'another connection is taking the place of this one' USING ERRCODE = 'LF001';
  END IF;
  now_us := {schema}.clock();
  SELECT s.watched_us > now_us, c.link INTO is_watched, present_link
    FROM {schema}.store s LEFT JOIN {schema}.clients c ON c.client = who;
  IF present_link IS DISTINCT FROM via THEN
    RAISE EXCEPTION 'this connection is not registered' USING ERRCODE = 'LF001';
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level read committed' USING ERRCODE = 'LF002';
  END IF;
  codes := array_fill(0::smallint, ARRAY[cardinality(kinds)]);
  numbers := array_fill(NULL::bigint, ARRAY[cardinality(kinds)]);
  IF cardinality(kinds) > 2 AND NOT is_watched THEN
    FOR answer IN
      UPDATE {schema}.locks l SET
          holder = CASE r.kind WHEN 13 THEN NULL ELSE r.holder END,
          fence = CASE WHEN r.kind < 13 THEN greatest(l.fence + 1, serve.now_us) ELSE l.fence END,
          until_us = CASE r.kind WHEN 13 THEN serve.now_us
            ELSE serve.now_us + r.ttl + coalesce(r.delay, 0) END,
          since_us = CASE WHEN r.kind < 13 THEN serve.now_us ELSE l.since_us END,
          offer = false
        FROM unnest(kinds, names, holders, ttls, delays, modes, floors)
          WITH ORDINALITY AS r (kind, name, holder, ttl, delay, mode, floor, at)
        WHERE l.name = r.name AND r.kind > 10 AND l.crowd = 0
          AND CASE WHEN r.kind < 13 THEN l.holder IS NULL AND l.fence < 9007199254740991
              AND coalesce(r.mode, 0) = 0 AND r.floor IS NULL
            ELSE l.holder = r.holder AND l.until_us > serve.now_us END
        RETURNING r.at, l.fence
    LOOP
      codes[answer.at] := 1;
      numbers[answer.at] := answer.fence;
    END LOOP;
  END IF;
  FOR i IN 1 .. cardinality(kinds) LOOP
    CONTINUE WHEN codes[i] = 1;
    code := 0; number := NULL; said := NULL; event := NULL;
    kind := kinds[i] % 10;
    lease_us := ttls[i] + coalesce(delays[i], 0);
    IF kind = 3 THEN
      UPDATE {schema}.locks l SET holder = NULL, until_us = serve.now_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.crowd = 0
          AND l.until_us > serve.now_us
        RETURNING l.fence INTO number;
      IF FOUND THEN
        code := 1; event := 'r';
      ELSE
        code := {schema}.release(names[i], holders[i], is_watched);
      END IF;
    ELSIF kind = 4 THEN
      UPDATE {schema}.locks l SET until_us = serve.now_us + lease_us, offer = false
        WHERE l.name = names[i] AND l.holder = holders[i] AND l.until_us > serve.now_us
          AND (l.crowd = 0 OR l.until_us <= serve.now_us + lease_us);
      IF FOUND THEN
        code := 1;
      ELSE
        SELECT r.code, r.note INTO code, said
          FROM {schema}.renew(names[i], holders[i], ttls[i], coalesce(delays[i], 0)) r;
      END IF;
    ELSE
      IF coalesce(modes[i], 0) = 0 AND floors[i] IS NULL THEN
        UPDATE {schema}.locks l SET holder = holders[i], fence = greatest(l.fence + 1, serve.now_us),
            until_us = serve.now_us + lease_us, since_us = serve.now_us
          WHERE l.name = names[i] AND l.holder IS NULL AND l.crowd = 0
            AND l.fence < 9007199254740991
          RETURNING l.fence INTO number;
        IF NOT FOUND THEN
          -- The floor is read after the row was seen to be missing.
          INSERT INTO {schema}.locks AS l (name, fence, holder, until_us, since_us)
            SELECT names[i], greatest(s.floor + 1, serve.now_us), holders[i],
                serve.now_us + lease_us, serve.now_us
              FROM {schema}.store s
              WHERE s.floor < 9007199254740991
            ON CONFLICT DO NOTHING RETURNING l.fence INTO number;
        END IF;
      END IF;
      IF number IS NOT NULL THEN
        code := 1; event := 'g';
      ELSE
        answer := {schema}.acquire(names[i], holders[i], coalesce(modes[i], 0), ttls[i],
          coalesce(delays[i], 0), floors[i], calls[i], kind = 2, is_watched);
        code := answer.code; number := answer.number; said := answer.note;
      END IF;
    END IF;
    IF is_watched AND event IS NOT NULL THEN
      is_watched := {schema}.note(event, names[i], number, holders[i], now_us);
    END IF;
    codes[i] := code;
    numbers[i] := number;
    IF said IS NOT NULL THEN
      notes := coalesce(notes, array_fill(NULL::text, ARRAY[cardinality(kinds)]));
      notes[i] := said;
    END IF;
  END LOOP;
END $$;
