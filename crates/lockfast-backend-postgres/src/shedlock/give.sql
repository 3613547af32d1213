-- Lets the row $1 end now, if it is held by whose rows begin with $2.
UPDATE {table} SET lock_until = {now}
WHERE name = $1 AND left(locked_by, {key}) = $2 AND lock_until > {clock}
RETURNING true
