-- Lets a row end in so many microseconds, if it is held by this holder.
UPDATE {table} SET lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3))
WHERE name = ? AND LEFT(locked_by, {key}) = ? AND lock_until > UTC_TIMESTAMP(3)
