-- Takes locks on this node, many in one call.
--
-- KEYS  watch, client, crowd; then for each lock: itself, fence. Who waits for it is found beside it.
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
local call = redis.call
local found = call('MGET', unpack(KEYS))
-- A command of a connection that was given up must not take effect late.
if not found[2] or string.sub(found[2], 1, 8) ~= ARGV[1] then
  return redis.error_reply('LFSTALE this connection is not registered')
end
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local answers, left = {}, {}

-- The most frequent case, with as little as can be: locks that are free, and nobody watches.
local lease, fence_ms
local latest_us = found[1] and 0 or now_us + AHEAD_US
for i = 1, (#KEYS - 3) / 2 do
  local at, arg = 2 * i + 2, 4 * i - 2
  local proposal = ARGV[arg + 1]
  local number = tonumber(proposal)
  if ARGV[arg + 2] ~= lease then
    lease = ARGV[arg + 2]
    fence_ms = string.format('%.0f', lease + DAY_MS)
  end
  -- Something that is no string looks free to MGET, but not to NX.
  if not found[at] and number <= latest_us and ARGV[arg + 3] < '4'
    and (not found[at + 1] or number > (tonumber(found[at + 1]) or number))
    and call('SET', KEYS[at], ARGV[arg] .. '.' .. proposal, 'NX', 'PX', lease) then
    call('SET', KEYS[at + 1], proposal, 'PX', fence_ms)
    answers[i] = 1
  else
    left[#left + 1] = i
  end
end
if #left == 0 then
  return answers
end

local events = {}

local function tell(kind, fence, holder, lease, key)
  if found[1] then
    events[#events + 1] = kind .. '\t' .. fence .. '\t' .. holder .. '\t' .. lease .. '\t' .. key
  end
end

local function keep(i, holder, fence, lease, condition)
  local at = 2 * i + 2
  if not call('SET', KEYS[at], holder .. '.' .. fence, condition, 'PX', lease) then
    return false
  end
  call('SET', KEYS[at + 1], fence, 'PX', lease + DAY_MS)
  tell('g', fence, holder, lease, KEYS[at])
  return true
end

-- Another has it.
local function refuse(i, value, holder, waits)
  local at = 2 * i + 2
  local callers = 'lockfast:{' .. KEYS[at] .. '}:callers'
  local place = -1
  if waits then
    if call('ZADD', callers, 'NX', now_us, holder) == 1 then
      tell('q', '', holder, 0, KEYS[at])
    end
    call('PEXPIRE', callers, 30000)
    -- There as long as anybody waits for any lock.
    call('SET', KEYS[3], '1', 'PX', 31000)
    place = call('ZRANK', callers, holder)
  end
  return { 0, value, call('PTTL', KEYS[at]), call('ZCARD', callers), place }
end

local function take(i)
  local at, arg = 2 * i + 2, 4 * i - 2
  local holder, proposal, lease, how = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local value, seen = found[at], found[at + 1] or '0'
  how = tonumber(how)
  local waits, raises, is_caller = how % 2 == 1, how % 4 >= 2, how >= 4
  if value and string.sub(value, 1, 23) == holder .. '.' then
    local own = string.sub(value, 24)
    if not raises and own ~= proposal then
      call('PEXPIRE', KEYS[at], lease)
      return { 3, tonumber(own) }
    elseif tonumber(proposal) < (tonumber(own) or 0) then
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
    call('ZREM', 'lockfast:{' .. KEYS[at] .. '}:callers', holder)
  end
  return 1
end

for _, i in ipairs(left) do
  answers[i] = take(i)
end
if #events > 0 then
  call('PUBLISH', 'lockfast:events', string.format('E\n%.0f\n', now_us) .. table.concat(events, '\n'))
end
return answers
