-- The row $1, or all rows that are held if there is no name.
SELECT name::text, locked_by::text, (extract(epoch FROM locked_at) * 1000000)::bigint,
  (extract(epoch FROM lock_until - {clock}) * 1000000)::bigint
FROM {table} WHERE name = $1 OR $1 IS NULL AND lock_until > {clock}
