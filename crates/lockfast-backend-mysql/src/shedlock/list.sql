-- All rows that are held.
SELECT name, locked_by, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), lock_until)
FROM {table} WHERE lock_until > UTC_TIMESTAMP(3)
