-- The columns of the table $1: whether there is a table, and for each its type, what the type is
-- limited to, and whether it is unique by itself.
SELECT to_regclass($1) IS NOT NULL, wanted.name, coalesce(a.atttypid::regtype::text, ''),
  coalesce(a.atttypmod, -1),
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
    AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM unnest(ARRAY['name', 'lock_until', 'locked_at', 'locked_by']) AS wanted (name)
LEFT JOIN pg_attribute a
  ON a.attrelid = to_regclass($1) AND a.attname = wanted.name AND NOT a.attisdropped
