-- Takes the row $1 for $2 ms as the owner $3, whose rows begin with $4, and with $5 where it was taken
-- away. A row that the holder has keeps its locked_at; otherwise it is above that of the row before,
-- unless another program's clock was ahead of ours.
INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by)
VALUES ($1, {now} + $2 * interval '1 millisecond', {now}, $3)
ON CONFLICT (name) DO UPDATE SET
  lock_until = {now} + $2 * interval '1 millisecond',
  locked_at = CASE
    WHEN left(held.locked_by, {key}) = $4 AND held.lock_until > {clock} THEN held.locked_at
    WHEN held.locked_at <= {clock} OR starts_with(held.locked_by, 'lockfast/')
      THEN greatest({now}, held.locked_at + interval '1 millisecond')
    ELSE {now} END,
  locked_by = $3
WHERE left(held.locked_by, {key}) = $4
  OR held.lock_until <= {clock} AND left(held.locked_by, {key}) <> $5
RETURNING true
