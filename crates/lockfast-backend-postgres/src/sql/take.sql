-- One acquisition that comes alone, for roles that may change the tables themselves: a free lock to be
-- held alone is taken by a plain statement, which costs half of a function; everything else is left to
-- `serve`. The answer is a line: code, number, the server's clock, whether
-- somebody has to be told, note.
--
-- A request of a connection that was given up must not take effect. If the statement began after
-- another connection took its place, it sees so. If it began before, it grants only a lock that
-- became free before it began, and so before anything that the other connection did.
--
-- $1 client, $2 link, $3 name, $4 holder, $5 ttl, $6 call, $7 whether it may wait
WITH granted AS (
  UPDATE {schema}.locks l
    SET holder = $4, fence = greatest(l.fence + 1, {schema}.beginning()),
      until_us = {schema}.beginning() + $5, since_us = {schema}.beginning()
    WHERE l.name = $3 AND l.holder IS NULL AND l.crowd = 0
      AND l.fence < 9007199254740991 AND l.until_us <= {schema}.beginning()
      AND (SELECT c.link FROM {schema}.clients c
        WHERE c.client = $1 AND c.watched_us <= {schema}.beginning()) = $2
    RETURNING l.fence
)
SELECT coalesce(
  (SELECT concat_ws(' ', 1, g.fence, 0, 0) FROM granted g),
  (SELECT concat_ws(' ', s.codes[1], coalesce(s.numbers[1]::text, '-'), s.now_us,
      CASE WHEN s.owed IS NULL THEN 0 ELSE 1 END, s.notes[1])
    FROM {schema}.serve($1, $2, ARRAY[CASE WHEN $7 THEN 2 ELSE 1 END]::smallint[], ARRAY[$3],
      ARRAY[$4], ARRAY[$5], '{}', '{}', '{}', ARRAY[$6]) s))
