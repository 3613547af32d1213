-- One release that comes alone, as in take.sql.
--
-- $1 client, $2 link, $3 name, $4 holder
WITH released AS (
  UPDATE {schema}.locks l SET holder = NULL, until_us = {schema}.clock(), offer = false
    WHERE l.name = $3 AND l.holder = $4 AND l.crowd = 0 AND l.until_us > {schema}.clock()
      AND (SELECT c.link FROM {schema}.clients c
        WHERE c.client = $1 AND c.watched_us <= {schema}.beginning()) = $2
    RETURNING 1
)
SELECT coalesce(
  (SELECT '1 - 0 0' FROM released),
  (SELECT concat_ws(' ', s.codes[1], coalesce(s.numbers[1]::text, '-'), s.now_us,
      CASE WHEN s.owed IS NULL THEN 0 ELSE 1 END, s.notes[1])
    FROM {schema}.serve($1, $2, '{3}', ARRAY[$3], ARRAY[$4], '{0}', '{}', '{}', '{}', '{0}') s))
