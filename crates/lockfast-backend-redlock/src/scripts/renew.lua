-- Prolongs leases on this node, many in one call. Nothing is created.
--
-- KEYS  client; then for each lock: itself, fence, callers, revoked
-- ARGV  link; then for each lock: holder, lease in ms
-- Answers one entry per lock: the fence of what was renewed, or a table that begins with
--   0  nobody has it: 1 if its fence is known, 0 if that is gone too
--   1  another has it: its value
--   2  an operator took it away: the reason
--   4  the key is no lock

local DAY_MS = 86400000
-- A command of a connection that was given up must not take effect late.
local link = string.sub(redis.call('GET', KEYS[1]) or '-', 1, 8)
if link ~= ARGV[1] then
  return redis.error_reply('LFSTALE ' .. link)
end
local answers = {}
for i = 1, (#KEYS - 1) / 4 do
  local at = 4 * i - 2
  local holder, lease = ARGV[2 * i], ARGV[2 * i + 1]
  local value = redis.pcall('GET', KEYS[at])
  if type(value) == 'table' then
    answers[i] = { 4 }
  elseif value and string.sub(value, 1, 23) == holder .. '.' then
    if redis.call('PTTL', KEYS[at]) > lease + 50 then
      -- Those who wait for its end would look too late.
      for _, caller in ipairs(redis.pcall('ZRANGE', KEYS[at + 2], 0, 1)) do
        redis.call('PUBLISH', 'lockfast:push:' .. string.sub(caller, 1, 8),
          'C\t' .. string.sub(redis.sha1hex(caller), 1, 16) .. '\t1')
      end
    end
    redis.call('PEXPIRE', KEYS[at], lease)
    if redis.call('PEXPIRE', KEYS[at + 1], lease + DAY_MS) == 0 then
      redis.call('SET', KEYS[at + 1], string.sub(value, 24), 'PX', lease + DAY_MS)
    end
    answers[i] = tonumber(string.sub(value, 24)) or { 4 }
  else
    local revoked = redis.pcall('GET', KEYS[at + 3])
    if type(revoked) == 'string' and string.sub(revoked, 1, 23) == holder .. '\t' then
      answers[i] = { 2, string.sub(revoked, 24) }
    elseif value then
      answers[i] = { 1, value }
    else
      answers[i] = { 0, redis.call('EXISTS', KEYS[at + 1]) }
    end
  end
end
return answers
