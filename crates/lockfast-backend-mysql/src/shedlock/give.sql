-- Lets a row end now, if it is held by this holder.
UPDATE {table} SET lock_until = UTC_TIMESTAMP(3)
WHERE name = ? AND LEFT(locked_by, {key}) = ? AND lock_until > UTC_TIMESTAMP(3)
