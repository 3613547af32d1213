-- Takes a lock away on this node, tells its holder, and calls those who wait.
--
-- KEYS  watch, lock, callers, revoked
-- ARGV  the value that is to go, reason
-- Answers 1 if it did, 0 if the lock has another value or none.

local value = redis.pcall('GET', KEYS[2])
if type(value) ~= 'string' or value ~= ARGV[1] then
  return 0
end
local function tag(holder)
  return string.sub(redis.sha1hex(holder), 1, 16)
end
local left_ms = math.max(redis.call('PTTL', KEYS[2]), 60000)
redis.call('DEL', KEYS[2])
local holder, fence = string.match(value, '^([%w_-]+)%.(%d+)$')
if holder and #holder == 22 then
  local client = string.sub(holder, 1, 8)
  redis.call('SET', KEYS[4], holder .. '\t' .. ARGV[2], 'PX', left_ms)
  redis.call('PUBLISH', 'lockfast:push:' .. client, 'R\t' .. tag(holder) .. '\t' .. ARGV[2])
  local watched = redis.call('GET', KEYS[1])
  if watched then
    local time = redis.call('TIME')
    redis.call('PUBLISH', watched, string.format('E\n%.0f\n', time[1] * 1000000 + time[2])
      .. 'v\t' .. fence .. '\t' .. client .. '\t' .. tag(holder) .. '\t0\t' .. KEYS[2])
  end
end
-- One of each of two processes, as with a release.
local first
local callers = redis.pcall('ZRANGE', KEYS[3], 0, 31)
for _, caller in ipairs(callers) do
  local client = string.sub(caller, 1, 8)
  if client ~= first then
    local channel, rank = 'lockfast:push:' .. client, first and 1 or 0
    if redis.call('PUBLISH', channel, 'C\t' .. tag(caller) .. '\t' .. rank) == 0 then
      redis.call('ZREM', KEYS[3], caller)
    elseif first then
      break
    else
      first = client
    end
  end
end
return 1
