-- Gives locks back, many in one call. This part serves those that nobody waits for; the rest is
-- in leave.lua.
--
-- KEYS  fence, client, watch, guard, crowd; then for each lock: itself, queue, shared, revoked
-- ARGV  link, identity, longest lease; then for each lock: holder, or the claim as it waited
-- Answers one entry per lock: 1 released; 2 released, and somebody else has it now; 0 the holder
-- did not have it.

local count = (#KEYS - 5) / 4
local answers, left, found, events, watched = {}, {}, {}, {}, false
local function starts_with(value, claim)
  return string.sub(value, 1, 23) == string.sub(claim, 1, 22) .. '.'
end
if count == 1 then
  -- The most frequent case with as few calls as can be.
  found = redis.call('MGET', KEYS[6], KEYS[3], KEYS[5])
  watched = found[2]
  if CLUSTER then
    watched = redis.call('PUBSUB', 'NUMSUB', 'lockfast:watched')[2] > 0
  end
  if found[1] and not watched and starts_with(found[1], ARGV[4])
    and (not found[3] or redis.call('EXISTS', KEYS[7]) == 0) then
    redis.call('DEL', KEYS[6])
    return { 1 }
  end
  left[1] = 1
else
  local locks, queues, gone, is_gone = {}, {}, {}, {}
  for i = 1, count do
    locks[i] = KEYS[4 * i + 2]
    queues[i] = KEYS[4 * i + 3]
  end
  locks[count + 1] = KEYS[3]
  locks[count + 2] = KEYS[5]
  found = redis.call('MGET', unpack(locks))
  watched = found[count + 1]
  local all_idle = not found[count + 2] or redis.call('EXISTS', unpack(queues)) == 0
  for i = 1, count do
    local value = found[i]
    if value and not is_gone[locks[i]] and starts_with(value, ARGV[i + 3])
      and (all_idle or redis.call('EXISTS', queues[i]) == 0) then
      answers[i] = 1
      gone[#gone + 1] = locks[i]
      is_gone[locks[i]] = true
      if watched then
        events[#events + 1] = 'r\t' .. string.sub(value, 24) .. '\t' .. string.sub(value, 1, 8)
          .. '\t0\t' .. locks[i]
      end
    else
      left[#left + 1] = i
    end
  end
  if #gone > 0 then
    redis.call('DEL', unpack(gone))
  end
  if #left == 0 and not watched then
    return answers
  end
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local fence = redis.pcall('GET', KEYS[1]) or '0'
fence = type(fence) == 'string' and string.find(fence, '^%d+$') and tonumber(fence)
local fence_before = fence
local quarantined = false
if ARGV[2] ~= '' then
  local identity, ends = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) ')
  quarantined = identity ~= ARGV[2] or tonumber(ends) * 1000 > now_us
end
local crowd_value = found[count + 2]
