-- The rest of give.lua, for locks that others may wait for.

local fence, now_us, is_raised
-- What stands in the locks that this call has changed: it may name one of them again.
local current = {}

-- Gives the lock to the first one that waits and is there, and tells it and those behind it, as
-- settle() in queue.lua does. Returns nil if nobody waits.
local function pass_on(lock, queue)
  while true do
    local heads = redis.pcall('ZRANGE', queue, 0, 1)
    if heads[1] and crowd >= SOME_HUNG then
      heads = read_heads(queue, crowd)
    end
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
    local now_ms, ms = math.floor(now_us / 1000), lasts + delay
    local is_next_same = heads[2] and string.sub(heads[2], 1, 8) == client
    local tells = heads[2] and (crowd >= MIXED or not is_next_same)
      and must_tell(queue, heads[1], is_next_same, ms, now_ms)
    -- Whoever is not there any more does not come back. After the first write Redis lets all
    -- others pass, also without memory.
    call('ZREM', queue, heads[1])
    if is_next_same then
      message = message .. '\nH\t' .. string.sub(heads[2], 1, 22) .. '\t' .. lease
    end
    if tells then
      -- Redis writes first to the one who was told last.
      tell_others(lock, queue, client, ms, now_ms, crowd)
    elseif not heads[2] and crowd >= MIXED then
      call('DEL', told_key(queue))
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
