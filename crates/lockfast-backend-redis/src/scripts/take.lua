-- Takes locks that are to be held alone, many in one call, with as little as can be: those that
-- are free, and those that somebody else holds alone, which it queues for. What is not that
-- simple is left to acquire.lua.
--
-- KEYS  fence, client, watch, crowd; then for each lock: itself, queue
-- ARGV  link; then for each lock: claim (of one that does not wait only "holder."), lease in ms
-- Answers one entry per lock: the fence; { 0, place, ms, now, who } it waits, see admit.lua; 0 for
-- acquire.lua. Or -1: at the moment nothing is that simple. For a single lock its entry is all of
-- the answer, because a table costs as much as a call.

local call = redis.call
local count = (#KEYS - 4) / 2
local found
if count == 1 then
  found = call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
else
  found = call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
end
local fence, client, crowd = found[1], found[2], found[4]
if not fence and call('EXISTS', KEYS[1]) == 0 then
  fence = '0'
end
if not fence or not client or found[3] or string.sub(client, 1, 8) ~= ARGV[1]
  or not string.find(fence, '^%d+$') then
  return -1
end
local time = call('TIME')
if count == 1 and not crowd and not found[5] then
  -- The most frequent case. Both are digits, so that they need not become numbers.
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  if #fence == #now and fence < now and now < '9007199254740992'
    and call('SET', KEYS[5], string.sub(ARGV[2], 1, 23) .. now, 'NX', 'PX', ARGV[3]) then
    call('SET', KEYS[1], now)
    return now
  end
end

local now_us = time[1] * 1000000 + time[2]
local number = tonumber(fence)
if number < now_us then
  number = now_us - 1
end
if number + count >= 9007199254740992 then
  return -1
end

-- Waits for a lock that somebody else holds alone. Returns 0 if it is known there already, or if
-- the queue is none.
local function wait(lock, queue, claim, value)
  local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
  if last.err then
    return 0
  end
  local ticket = now_us
  if last[2] and tonumber(last[2]) >= ticket then
    ticket = tonumber(last[2]) + 1
  end
  if call('ZADD', queue, 'NX', string.format('%.0f', ticket), claim) == 0 then
    return 0
  end
  call('PEXPIRE', queue, 60000)
  -- See others.lua: whether several clients wait for it.
  local level = last[1] and string.sub(last[1], 1, 8) ~= string.sub(claim, 1, 8) and '3' or '1'
  local left = call('PTTL', KEYS[4])
  if left < 60000 or (crowd or '') < level then
    crowd = (crowd or '') > level and crowd or level
    call('SET', KEYS[4], crowd, 'PX', math.max(left, 80000))
  end
  if level == '3' then
    call('SET', string.sub(queue, 1, -6) .. 'told', '0.0', 'NX', 'PX', 60000)
  end
  return { 0, last[1] and 1 or 0, call('PTTL', lock), now_us, string.sub(value, 1, 8) }
end

local answers, is_raised = {}, false
for i = 1, count do
  local lock, claim = KEYS[2 * i + 3], ARGV[2 * i]
  answers[i] = 0
  -- The crowd is there as long as anybody waits for any lock.
  if not crowd or call('EXISTS', KEYS[2 * i + 4]) == 0 then
    local text = string.format('%.0f', number + 1)
    local value = string.sub(claim, 1, 23) .. text
    if call('SET', lock, value, 'NX', 'PX', ARGV[2 * i + 1]) then
      number = number + 1
      is_raised = true
      answers[i] = text
    end
  end
  if answers[i] == 0 and #claim > 23 then
    local value = redis.pcall('GET', lock)
    if type(value) == 'string' and value ~= 'lockfast:shared'
      and string.sub(value, 1, 22) ~= string.sub(claim, 1, 22) then
      answers[i] = wait(lock, KEYS[2 * i + 4], claim, value)
    end
  end
end
if is_raised then
  call('SET', KEYS[1], string.format('%.0f', number))
end
return count == 1 and answers[1] or answers
