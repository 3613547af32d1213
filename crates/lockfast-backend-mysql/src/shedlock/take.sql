-- Takes a row that is free or the holder's already, not one that was taken away from it. The parts are set one after the other, so the one
-- that depends on the others comes first: a row that the holder has keeps its locked_at; otherwise it is
-- above that of the row before, unless another program's clock was ahead of the server's.
UPDATE {table} SET
  locked_at = CASE
    WHEN LEFT(locked_by, {key}) = ? AND lock_until > UTC_TIMESTAMP(3) THEN locked_at
    WHEN locked_at <= UTC_TIMESTAMP(3) OR LEFT(locked_by, 9) = 'lockfast/'
      THEN GREATEST(UTC_TIMESTAMP(3), TIMESTAMPADD(MICROSECOND, 1000, locked_at))
    ELSE UTC_TIMESTAMP(3) END,
  lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)),
  locked_by = ?
WHERE name = ? AND (LEFT(locked_by, {key}) = ?
  OR lock_until <= UTC_TIMESTAMP(3) AND LEFT(locked_by, {key}) <> ?)
