-- Takes locks on this node, many in one call.
--
-- KEYS  watch, client; then for each lock: itself, fence, callers
-- ARGV  link; then for each lock: holder, proposed fence, lease in ms, how: the sum of 1 to wait, 2 to raise
--       what the holder has already to the proposal, 4 when it is among the callers
-- Answers one entry per lock: 1 granted, or a table that begins with
--   0  another has it: its value, the time left in ms, how many wait, our place among them
--   1  a later fence was seen: that fence
--   2  the proposal is too far ahead of this node's clock: the clock in microseconds
--   3  the holder has it already: its fence; its time begins again
--   4  the key is no lock
--   5  the fence is none

local DAY_MS = 86400000
local AHEAD_US = 60000000
local count = (#KEYS - 2) / 3
local wanted = { KEYS[1], KEYS[2] }
for i = 1, count do
  wanted[2 * i + 1] = KEYS[3 * i]
  wanted[2 * i + 2] = KEYS[3 * i + 1]
end
local found = redis.call('MGET', unpack(wanted))
-- A command of a connection that was given up must not take effect late.
if not found[2] or string.sub(found[2], 1, 8) ~= ARGV[1] then
  return redis.error_reply('LFSTALE this connection is not registered')
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local answers, events = {}, {}

local function tell(kind, fence, holder, lease, key)
  if found[1] then
    events[#events + 1] = kind .. '\t' .. fence .. '\t' .. holder .. '\t' .. lease .. '\t' .. key
  end
end

local function keep(i, holder, fence, lease, condition)
  local at = 3 * i
  if not redis.call('SET', KEYS[at], holder .. '.' .. fence, condition, 'PX', lease) then
    return false
  end
  redis.call('SET', KEYS[at + 1], fence, 'PX', lease + DAY_MS)
  tell('g', fence, holder, lease, KEYS[at])
  return true
end

-- Another has it.
local function refuse(i, value, holder, waits)
  local at = 3 * i
  local callers = KEYS[at + 2]
  local place = -1
  if waits then
    if redis.call('ZADD', callers, 'NX', now_us, holder) == 1 then
      tell('q', '', holder, 0, KEYS[at])
    end
    redis.call('PEXPIRE', callers, 30000)
    place = redis.call('ZRANK', callers, holder)
  end
  return { 0, value, redis.call('PTTL', KEYS[at]), redis.call('ZCARD', callers), place }
end

local function take(i)
  local at, arg = 3 * i, 4 * i - 2
  local holder, proposal, lease, how = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local value, seen = found[2 * i + 1], found[2 * i + 2] or '0'
  how = tonumber(how)
  local waits, raises, is_caller = how % 2 == 1, how % 4 >= 2, how >= 4
  if value and string.sub(value, 1, 23) == holder .. '.' then
    local own = string.sub(value, 24)
    if not raises and own ~= proposal then
      redis.call('PEXPIRE', KEYS[at], lease)
      return { 3, tonumber(own) }
    elseif tonumber(proposal) < tonumber(own) then
      return { 1, tonumber(own) }
    end
  elseif value then
    return refuse(i, value, holder, waits)
  elseif not string.find(seen, '^%d+$') then
    return { 5 }
  elseif tonumber(proposal) <= tonumber(seen) then
    return { 1, tonumber(seen) }
  end
  -- Above a fence that was granted there is always one, also when the clock was set back since.
  if tonumber(proposal) > math.max(now_us + AHEAD_US, (tonumber(seen) or 0) + 1000000) then
    return { 2, now_us }
  end
  if not keep(i, holder, proposal, lease, value and 'XX' or 'NX') then
    -- Something that is no string looks free to MGET; or it was taken in this very call.
    value = redis.pcall('GET', KEYS[at])
    if type(value) ~= 'string' then
      return { 4 }
    end
    return refuse(i, value, holder, waits)
  end
  if is_caller then
    redis.call('ZREM', KEYS[at + 2], holder)
  end
  return 1
end

for i = 1, count do
  answers[i] = take(i)
end
if #events > 0 then
  redis.call('PUBLISH', 'lockfast:events', string.format('E\n%.0f\n', now_us) .. table.concat(events, '\n'))
end
return answers
