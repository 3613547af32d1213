-- Takes a row that is missing. One that is there stays as it is, and what does not fit is an error.
INSERT INTO {table} (name, lock_until, locked_at, locked_by)
VALUES (?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), ?)
ON DUPLICATE KEY UPDATE name = {table}.name
