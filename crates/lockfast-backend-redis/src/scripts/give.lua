-- Gives back locks that were held alone, many in one call, with as little as can be: they become
-- free, or go to the next one that waits to hold it alone. The rest is left to release.lua.
--
-- KEYS  fence, watch, crowd; then for each lock: itself, queue
-- ARGV  for each lock: "holder."
-- Answers one entry per lock: 1 released; 2 released, and somebody else has it now; 0 for
-- release.lua. Or -1: at the moment nothing is that simple. For a single lock its entry is all of
-- the answer, because a table costs as much as a call.

local call = redis.call
local count = (#KEYS - 3) / 2
local found
if count == 1 then
  found = call('MGET', KEYS[4], KEYS[2], KEYS[3])
  if found[1] and not found[2] and not found[3] and string.sub(found[1], 1, 23) == ARGV[1] then
    call('DEL', KEYS[4])
    return 1
  end
else
  local keys = {}
  for i = 1, count do
    keys[i] = KEYS[2 * i + 2]
  end
  keys[count + 1] = KEYS[2]
  keys[count + 2] = KEYS[3]
  found = call('MGET', unpack(keys))
end
if found[count + 1] then
  return -1
end
local crowd = found[count + 2]
local fence, now_us, is_raised
-- What stands in the locks that this call has changed: it may name one of them again.
local current = {}

-- Gives the lock to the first one that waits and is there, and tells it and the one behind it, as
-- settle() in queue.lua does. Returns nil if nobody waits.
local function pass_on(lock, queue)
  while true do
    local heads = redis.pcall('ZRANGE', queue, 0, 1)
    if heads.err then
      return 0
    elseif not heads[1] then
      return nil
    end
    if not now_us then
      local time = call('TIME')
      now_us = time[1] * 1000000 + time[2]
      fence = redis.pcall('GET', KEYS[1])
    end
    local holder, ttl, delay = string.match(heads[1], '^([^.]+)%.x%.(%d+)%.(%d+)$')
    if not holder or type(fence) ~= 'string' or not string.find(fence, '^%d+$') then
      return 0
    end
    local number = math.max(tonumber(fence) + 1, now_us)
    if number >= 9007199254740992 then
      return 0
    end
    local text, lasts = string.format('%.0f', number), math.min(tonumber(ttl), 1500)
    local client, lease = string.sub(holder, 1, 8), string.format('%d', lasts + delay)
    local message = string.format('G\t%s\t%s\t%.0f\t%d\t%s', holder, text, now_us, lasts, lock)
    -- Whoever is not there any more does not come back. After the first write Redis lets all
    -- others pass, also without memory.
    call('ZREM', queue, heads[1])
    if heads[2] then
      local next_message = 'H\t' .. string.sub(heads[2], 1, 22) .. '\t' .. lease
      local next_client = string.sub(heads[2], 1, 8)
      if next_client == client then
        message = message .. '\n' .. next_message
      else
        -- Redis writes first to the one who was told last.
        call('PUBLISH', 'lockfast:push:' .. next_client, next_message)
      end
    end
    if call('PUBLISH', 'lockfast:push:' .. client, message) > 0 then
      current[lock] = holder .. '.' .. text
      call('SET', lock, current[lock], 'PX', lease)
      fence, is_raised = text, true
      return 2
    end
  end
end

local answers, gone = {}, {}
for i = 1, count do
  local value, lock = found[i], KEYS[2 * i + 2]
  if current[lock] ~= nil then
    value = current[lock]
  end
  answers[i] = 0
  if value and string.sub(value, 1, 23) == ARGV[i] then
    answers[i] = crowd and pass_on(lock, KEYS[2 * i + 3])
    if not answers[i] then
      gone[#gone + 1] = lock
      current[lock] = false
      answers[i] = 1
    end
  end
end
if gone[1] then
  call('DEL', unpack(gone))
end
if is_raised then
  call('SET', KEYS[1], fence)
end
return count == 1 and answers[1] or answers
