-- Takes a lock away from all who have it, tells them, and lets the next in. See opening.lua.
--
-- ARGV  …, expected fence or "", reason
-- Answers { 0 } nobody has it; { 1, … } taken from these; { 2, … } they have another fence. For
-- the rest of the table see view().

local at = 6
local value = look(at)
if value == nil then
  return redis.error_reply('WRONGTYPE ' .. KEYS[at])
end
local seen = view(at, value, now_ms)
if not value then
  table.insert(seen, 1, 0)
  return seen
end

-- Who has it, as pairs of holder and fence; a holder that is not Lockfast's has neither.
local holders = {}
if value == MARK then
  for j = 6, #seen, 2 do
    holders[#holders + 1] = { seen[j], string.match(seen[j + 1], '%d+$') }
  end
else
  local holder, number = string.match(value, '^([%w_-]+)%.(%d+)$')
  if holder and #holder == 22 then
    holders[1] = { holder, number }
  end
end
local expected = ARGV[4] == ''
for _, holder in ipairs(holders) do
  expected = expected or holder[2] == ARGV[4]
end
if not expected then
  table.insert(seen, 1, 2)
  return seen
end

local left_ms = math.max(redis.call('PTTL', KEYS[at]), 1)
redis.call('DEL', KEYS[at], KEYS[at + 2])
for _, holder in ipairs(holders) do
  redis.call('HSET', KEYS[at + 3], holder[1], ARGV[5])
  -- A holder need not listen where the lock is, so on a cluster it is told by all nodes.
  redis.call('PUBLISH', 'lockfast:push:' .. string.sub(holder[1], 1, 8), 'R\t' .. holder[1] .. '\t' .. ARGV[5])
  tell('v', at, holder[1], tonumber(holder[2]))
end
if #holders > 0 and redis.call('PTTL', KEYS[at + 3]) < left_ms then
  redis.call('PEXPIRE', KEYS[at + 3], left_ms)
  crowd(left_ms, '1')
end
settle(at, false, nil, nil, false)
finish()
table.insert(seen, 1, 1)
return seen
