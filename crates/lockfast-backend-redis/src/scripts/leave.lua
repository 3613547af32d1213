-- The releases that release.lua could not serve: somebody waits, the lock is shared, or the
-- holder does not have it.

-- Only a claim that has waited is looked for: whoever gives it up knows its text.
local function leave_queue(at, claim, holder)
  if claim == holder then
    return
  end
  local place = redis.call('ZRANK', KEYS[at + 1], claim)
  if place then
    redis.call('ZREM', KEYS[at + 1], claim)
    tell('a', at, holder)
    settle(at, nil, nil, nil, place == 0)
  end
end

local function leave(at, claim, value)
  local holder = string.sub(claim, 1, 22)
  serve(holder)
  if value and starts_with(value, claim) then
    -- The lock's key goes to the next one, or away.
    tell('r', at, holder, tonumber(string.sub(value, 24)))
    local _, given = settle(at, false, nil, nil, false)
    if not given then
      redis.call('DEL', KEYS[at])
    end
    return given and 2 or 1
  end
  value = look(at)
  local number
  if value == MARK then
    local record = redis.call('HGET', KEYS[at + 2], holder)
    number = record and tonumber(string.match(record, '%d+$'))
  end
  if number then
    drop(at, holder, 's')
    tell('r', at, holder, number)
    local _, given = settle(at, nil, nil, nil, false)
    return given and 2 or 1
  end
  redis.call('HDEL', KEYS[at + 3], holder)
  if CLUSTER and ARGV[3] == '1' then
    -- An acquisition may still arrive by the connection before this one, and is then too late.
    redis.call('SET', KEYS[2], ARGV[1], 'PX', 3600000)
  end
  leave_queue(at, claim, holder)
  return 0
end

for _, i in ipairs(left) do
  local at, claim, value = 4 * i + 2, ARGV[i + 3], found[i]
  if count > 1 then
    -- What was done for others of this call may have changed it.
    value = redis.pcall('GET', KEYS[at])
    value = type(value) == 'string' and value
  end
  local answer, complaint = attempt(leave, at, claim, value)
  if complaint and value and starts_with(value, claim) then
    -- Whoever has it alone can give it back, whatever is wrong with the queue.
    if starts_with(redis.call('GET', KEYS[at]) or '', claim) then
      redis.call('DEL', KEYS[at])
    end
    answer, complaint = 1, nil
  end
  answers[i] = complaint and redis.error_reply(complaint) or answer
end
finish()
return answers
