-- Takes a lock away on this node, tells its holder, and calls those who wait.
--
-- KEYS  watch, lock, callers, revoked
-- ARGV  the value that is to go, reason
-- Answers 1 if it did, 0 if the lock has another value or none.

local value = redis.pcall('GET', KEYS[2])
if type(value) ~= 'string' or value ~= ARGV[1] then
  return 0
end
local left_ms = math.max(redis.call('PTTL', KEYS[2]), 60000)
redis.call('DEL', KEYS[2])
local holder, fence = string.match(value, '^([%w_-]+)%.(%d+)$')
if holder and #holder == 22 then
  redis.call('SET', KEYS[4], holder .. '\t' .. ARGV[2], 'PX', left_ms)
  redis.call('PUBLISH', 'lockfast:push:' .. string.sub(holder, 1, 8), 'R\t' .. holder .. '\t' .. ARGV[2])
  if redis.call('EXISTS', KEYS[1]) == 1 then
    local time = redis.call('TIME')
    redis.call('PUBLISH', 'lockfast:events', string.format('E\n%.0f\n', time[1] * 1000000 + time[2])
      .. 'v\t' .. fence .. '\t' .. holder .. '\t0\t' .. KEYS[2])
  end
end
for told, caller in ipairs(redis.call('ZRANGE', KEYS[3], 0, 1)) do
  redis.call('PUBLISH', 'lockfast:push:' .. string.sub(caller, 1, 8), 'C\t' .. caller .. '\t' .. told - 1)
end
return 1
