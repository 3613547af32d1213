-- Takes the row $1 away from the owner $2 who has it since $3, and writes $4 there.
UPDATE {table} SET lock_until = {now}, locked_by = $4
WHERE name = $1 AND locked_by = $2 AND (extract(epoch FROM locked_at) * 1000000)::bigint = $3
  AND lock_until > {clock}
RETURNING true
