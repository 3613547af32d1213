-- Lets the row $1 end in $2 ms, if it is held by whose rows begin with $3.
UPDATE {table} SET lock_until = {now} + $2 * interval '1 millisecond'
WHERE name = $1 AND left(locked_by, {key}) = $3 AND lock_until > {clock}
RETURNING true
