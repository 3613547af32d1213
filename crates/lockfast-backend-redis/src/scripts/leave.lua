-- The releases that release.lua could not serve: somebody waits, the lock is shared, or the
-- holder does not have it.

local function leave_queue(at, holder)
  local queue = KEYS[at + 1]
  for place, text in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if string.sub(text, 1, 23) == holder .. '.' then
      redis.call('ZREM', queue, text)
      tell('a', at, holder)
      settle(at, nil, nil, nil, place == 1)
      return
    end
  end
end

local function has_alone(value, holder)
  return value and string.sub(value, 1, 23) == holder .. '.'
end

local function leave(at, holder, value)
  if has_alone(value, holder) then
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
  leave_queue(at, holder)
  return 0
end

for _, i in ipairs(left) do
  local at, holder = 4 * i + 2, ARGV[i + 3]
  local answer, complaint = attempt(leave, at, holder, found[i])
  if complaint and has_alone(found[i], holder) then
    -- Whoever has it alone can give it back, whatever is wrong with the queue.
    if has_alone(redis.call('GET', KEYS[at]), holder) then
      redis.call('DEL', KEYS[at])
    end
    answer, complaint = 1, nil
  end
  answers[i] = complaint and redis.error_reply(complaint) or answer
end
finish()
return answers
