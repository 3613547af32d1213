-- Takes locks on this node, many in one call.
--
-- KEYS  watch, client; then each lock. Its fence and who waits for it are found beside it.
-- ARGV  link; then for each lock: what is to stand there, which is HOLDER.FENCE with the proposed fence; and its
--       terms: a digit, the sum of 1 to wait, 2 to raise what the holder has already to the proposal, 4 when it
--       is among the callers, or 8 to become a caller and take nothing; and after the digit the lease in ms
-- Answers one entry per lock: 1 granted, or a table that begins with
--   0  another has it: its value, the time left in ms, how many wait, our place among them; also to whoever
--      takes nothing
--   1  a later fence was seen: that fence
--   2  the proposal is too far ahead of this node's clock: the clock in microseconds
--   3  the holder has it already: its fence; its time begins again
--   4  the key is no lock
--   5  the fence is none
--   6  those who wait are kept in something else
-- A single lock that is granted is answered 1 alone, because a table costs as much as a call.

local DAY_MS = 86400000
local AHEAD_S = 60
local KEYS, ARGV = KEYS, ARGV
local call, sub = redis.call, string.sub
local wanted = { KEYS[1], KEYS[2] }
for at = 3, #KEYS do
  wanted[at] = 'lockfast:{' .. KEYS[at] .. '}:fence'
end
local found = call('MGET', unpack(wanted))
-- A command of a connection that was given up must not take effect late.
if not found[2] or sub(found[2], 1, 8) ~= ARGV[1] then
  return redis.error_reply('LFSTALE ' .. sub(found[2] or '-', 1, 8))
end
local watched = found[1]
local answers, left = {}, {}

-- The most frequent case, with as little as can be: locks that are free, and nobody watches. A clock in
-- microseconds has sixteen digits, ten of them seconds, so that fences are compared as they are written.
local terms, lease, fence_ms, latest_s
for at = 3, #KEYS do
  local value, seen = ARGV[2 * at - 4], found[at]
  if ARGV[2 * at - 3] ~= terms then
    terms = ARGV[2 * at - 3]
    lease = sub(terms, 2)
    fence_ms = string.format('%.0f', lease + DAY_MS)
  end
  local fence = sub(value, 24)
  local second = sub(fence, 1, 10)
  local is_usual = not watched and terms < '4' and #fence == 16
    and (not seen or #seen == 16 and not string.find(seen, '%D') and seen < fence)
  -- Above a fence that was granted there is always one; otherwise the clock is asked.
  if is_usual and not (latest_s or seen and sub(seen, 1, 10) == second) then
    latest_s = call('TIME')[1] + AHEAD_S .. ''
  end
  if is_usual and (not latest_s or second < latest_s)
    and call('SET', KEYS[at], value, 'NX', 'PX', lease) then
    -- Something that is no string looks like no fence.
    if seen and call('SET', wanted[at], fence, 'PX', fence_ms) or not seen
      and call('SET', wanted[at], fence, 'NX', 'PX', fence_ms) then
      answers[at - 2] = 1
    else
      call('DEL', KEYS[at])
      answers[at - 2] = { 5 }
    end
  else
    left[#left + 1] = at
  end
end
if #left == 0 then
  return #KEYS == 3 and answers[1] == 1 and 1 or answers
end

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local events = {}

local function tell(kind, fence, holder, lease, key)
  if watched then
    -- Who knows a holder can release what it holds, so others hear a digest of it.
    local tag = sub(redis.sha1hex(holder), 1, 16)
    events[#events + 1] = kind .. '\t' .. fence .. '\t' .. sub(holder, 1, 8) .. '\t' .. tag .. '\t' .. lease
      .. '\t' .. key
  end
end

local function keep(at, value, lease, is_new, has_fence)
  local holder, fence = sub(value, 1, 22), sub(value, 24)
  local function note_fence()
    return call('SET', wanted[at], fence, has_fence and 'XX' or 'NX', 'PX', lease + DAY_MS)
  end
  if not is_new and not note_fence() then
    return { 5 }
  end
  if not call('SET', KEYS[at], value, is_new and 'NX' or 'XX', 'PX', lease) then
    -- Something that is no string looks free to MGET.
    return { 4 }
  end
  if is_new and not note_fence() then
    call('DEL', KEYS[at])
    return { 5 }
  end
  tell('g', fence, holder, lease, KEYS[at])
  return 1
end

-- Another has it.
local function refuse(at, value, holder, waits)
  local callers = 'lockfast:{' .. KEYS[at] .. '}:callers'
  local place = -1
  local count = redis.pcall('ZCARD', callers)
  if type(count) == 'table' then
    return { 6 }
  end
  if waits then
    if call('ZADD', callers, 'NX', now_us, holder) == 1 then
      count = count + 1
      tell('q', '', holder, 0, KEYS[at])
    end
    call('PEXPIRE', callers, 30000)
    -- There as long as anybody waits for any lock.
    call('SET', 'lockfast:crowd', '1', 'PX', 31000)
    place = call('ZRANK', callers, holder)
  end
  return { 0, value, call('PTTL', KEYS[at]), count, place }
end

local function take(at)
  local wish, terms = ARGV[2 * at - 4], ARGV[2 * at - 3]
  local holder, proposal, lease = sub(wish, 1, 22), tonumber(sub(wish, 24)), sub(terms, 2)
  local how = tonumber(sub(terms, 1, 1))
  if how == 8 then
    return refuse(at, false, holder, true)
  end
  local waits, raises, is_caller = how % 2 == 1, how % 4 >= 2, how >= 4
  -- Something may have been taken in this very call.
  local now = call('MGET', KEYS[at], wanted[at])
  local value, seen = now[1], now[2] or '0'
  if value and sub(value, 1, 23) == holder .. '.' then
    local own = sub(value, 24)
    if not raises and value ~= wish then
      call('PEXPIRE', KEYS[at], lease)
      return { 3, tonumber(own) }
    elseif proposal < (tonumber(own) or 0) then
      return { 1, tonumber(own) }
    end
  elseif value then
    return refuse(at, value, holder, waits)
  elseif not string.find(seen, '^%d+$') then
    return { 5 }
  elseif proposal <= tonumber(seen) then
    return { 1, tonumber(seen) }
  end
  -- Above a fence that was granted there is always one, also when the clock was set back since.
  if proposal > math.max(now_us + AHEAD_S * 1000000, (tonumber(seen) or 0) + 1000000) then
    return { 2, now_us }
  end
  local answer = keep(at, wish, lease, not value, now[2])
  if is_caller and answer == 1 then
    redis.pcall('ZREM', 'lockfast:{' .. KEYS[at] .. '}:callers', holder)
  end
  return answer
end

for _, at in ipairs(left) do
  answers[at - 2] = take(at)
end
if #events > 0 then
  call('PUBLISH', watched, string.format('E\n%.0f\n', now_us) .. table.concat(events, '\n'))
end
return answers
