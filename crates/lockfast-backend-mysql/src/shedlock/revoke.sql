-- Takes a row away from the owner who has it since then, and writes something else there.
UPDATE {table} SET lock_until = UTC_TIMESTAMP(3), locked_by = ?
WHERE name = ? AND locked_by = ? AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) = ?
  AND lock_until > UTC_TIMESTAMP(3)
