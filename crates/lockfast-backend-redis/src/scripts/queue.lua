-- The rule of the queue, for those scripts that need it. All claims of a lock stand in one line;
-- a waiting claim is granted when what is ahead of it agrees with its mode:
--   x   exclusive: nothing is ahead
--   s   shared: nothing exclusive is ahead
--   pN  permit: fewer than N are ahead, none of them exclusive
-- A claim is "holder.mode.ttl.delay", with ".floor" behind it if the fence must be above one.
-- It uses what the script before it has set: now_us, fence (false if it cannot be read),
-- fence_before, watched, quarantined, crowd_value and events. `at` is the place of a lock's first key.

-- For how long a lock is offered. Once somebody did not take it, the next has less time: it takes
-- the lock only when it has a full lease.
local OFFER_MS, BRIEF_OFFER_MS = 1500, 250
local offer_ms = OFFER_MS
-- The client of whoever is served.
local caller
local QUEUE_MS = 60000
local CROWD_SLACK_MS = 20000
local now_ms = math.floor(now_us / 1000)

-- Notes for so long that some lock has a queue or a revoked holder, or what else the level says:
-- then every script looks.
local function crowd(ms, level)
  local left = redis.call('PTTL', KEYS[5])
  if left < ms or (crowd_value or '') < level then
    crowd_value = (crowd_value or '') > level and crowd_value or level
    redis.call('SET', KEYS[5], crowd_value, 'PX', math.max(left, ms + CROWD_SLACK_MS))
  end
end

-- Takes note of a client whose hold ended by itself: until it is heard of, the others are served.
-- If it does not hang, it hears of that, and registers anew.
local function doubt(client)
  if hung[client] or client == caller then
    return
  end
  hung[client] = true
  offer_ms = BRIEF_OFFER_MS
  local key = 'lockfast:client:' .. client
  local record = not CLUSTER and redis.pcall('GET', key)
  if type(record) == 'string' and #record >= 8 and string.sub(record, 1, 8) ~= HUNG then
    redis.call('SET', key, HUNG .. string.sub(record, 9), 'KEEPTTL')
    redis.call('PUBLISH', 'lockfast:push:' .. client, 'W')
    crowd(QUEUE_MS, SOME_HUNG)
  end
end

local function is_mode(mode)
  return mode == 'x' or mode == 's' or (mode and string.find(mode, '^p[1-9]%d*$') ~= nil)
end

local function raise_fence(floor)
  local number = fence + 1
  if number < now_us then
    number = now_us
  end
  if floor and number <= floor then
    number = floor + 1
  end
  if number >= 9007199254740992 then
    return nil
  end
  fence = number
  return number
end

-- Nothing is read from what is no claim.
local function read_claim(text)
  local holder, mode, ttl, delay, floor =
    string.match(text, '^([^.]+)%.([^.]+)%.(%d+)%.(%d+)%.?(%d*)$')
  if not is_mode(mode) then
    return {}
  end
  return {
    holder = holder, mode = mode, ttl = tonumber(ttl), delay = tonumber(delay),
    floor = tonumber(floor), text = text,
  }
end

-- The mode of the first claim in a part of the queue that is not exclusive, and how long that part is.
local function find_mode(queue, first, last)
  local texts = redis.call('ZRANGE', queue, first, last)
  for _, text in ipairs(texts) do
    local mode = string.match(text, '^[^.]+%.([^.]+)')
    if mode ~= 'x' then
      return mode, #texts
    end
  end
  return nil, #texts
end

local function tell(kind, at, holder, number, lease)
  if watched then
    events[#events + 1] = kind .. '\t' .. (number and string.format('%.0f', number) or '-') .. '\t'
      .. string.sub(holder, 1, 8) .. '\t' .. (lease or 0) .. '\t' .. KEYS[at]
  end
end

local function push(at, holder, message)
  return publish(KEYS[at], string.sub(holder, 1, 8), message)
end

-- Removes shared holders whose lease is over, and the lock when none is left. Returns how many
-- are left. The field e is never after the first end, so that most calls need not look at all.
local function prune(at)
  local shared = KEYS[at + 2]
  local first = redis.call('HGET', shared, 'e')
  if not first or now_ms < tonumber(first) then
    -- Without the holders (evicted, say) the lock stays taken until it expires.
    return 1
  end
  local fields = redis.call('HGETALL', shared)
  local left, next_end = 0, nil
  for j = 1, #fields, 2 do
    if #fields[j] == 22 then
      local ends = tonumber(string.match(fields[j + 1], '^%d+'))
      if ends <= now_ms then
        redis.call('HDEL', shared, fields[j])
        doubt(string.sub(fields[j], 1, 8))
      else
        left = left + 1
        next_end = math.min(next_end or ends, ends)
      end
    end
  end
  if left == 0 then
    redis.call('DEL', shared, KEYS[at])
  else
    redis.call('HSET', shared, 'e', string.format('%.0f', next_end))
  end
  return left
end

-- What is stored for the lock: false when it is free, nil when it is no string.
local function look(at)
  local value = redis.pcall('GET', KEYS[at])
  if type(value) == 'table' then
    return nil
  end
  if value == MARK and prune(at) == 0 then
    value = false
  end
  if not value then
    redis.call('DEL', KEYS[at + 2])
  end
  return value
end

local function admits(at, value, mode)
  if not value then
    return value == false
  end
  if value ~= MARK or mode == 'x' or redis.call('HGET', KEYS[at + 2], 'm') ~= mode then
    return false
  end
  return mode == 's' or redis.call('HLEN', KEYS[at + 2]) - 2 < tonumber(string.sub(mode, 2))
end

-- Writes a shared holder down; the lock's own key lasts as long as the longest of them.
local function write_shared(at, holder, number, lease)
  local shared = KEYS[at + 2]
  local ends = now_ms + lease
  redis.call('HSET', shared, holder, string.format('%.0f.%.0f', ends, number))
  local first = redis.call('HGET', shared, 'e')
  if not first or ends < tonumber(first) then
    redis.call('HSET', shared, 'e', string.format('%.0f', ends))
  end
  if redis.call('PTTL', KEYS[at]) < lease then
    redis.call('SET', KEYS[at], MARK, 'PX', lease)
    redis.call('PEXPIRE', shared, lease)
  end
end

-- Gives the lock to a claim. Returns the server's complaint if it does not let us write.
local function hold(at, claim, number, lease)
  local done
  if claim.mode == 'x' then
    local value = claim.holder .. '.' .. string.format('%.0f', number)
    done = redis.pcall('SET', KEYS[at], value, 'PX', lease)
  else
    done = redis.pcall('HSET', KEYS[at + 2], 'm', claim.mode)
  end
  if type(done) == 'table' and done.err then
    return done.err
  end
  if claim.mode ~= 'x' then
    write_shared(at, claim.holder, number, lease)
  end
  return nil
end

-- Takes the lock from a holder that has it as `mode` says.
local function drop(at, holder, mode)
  if mode == 'x' then
    redis.call('DEL', KEYS[at])
    return
  end
  redis.call('HDEL', KEYS[at + 2], holder)
  if redis.call('HLEN', KEYS[at + 2]) <= 2 then
    redis.call('DEL', KEYS[at], KEYS[at + 2])
  end
end

-- How long what stands in the way lasts if nobody does anything, -1 for ever, and whose it is if one
-- client has it.
local function look_ahead(at)
  local value = redis.call('GET', KEYS[at])
  local first = value == MARK and redis.call('HGET', KEYS[at + 2], 'e')
  if first then
    return math.max(tonumber(first) - now_ms, 1), ''
  end
  local client = string.match(value or '', '^([%w_-]+)%.%d+$')
  return redis.call('PTTL', KEYS[at]), client and #client == 22 and string.sub(client, 1, 8) or ''
end

-- Begins to serve a holder.
local function serve(holder)
  caller, offer_ms = string.sub(holder, 1, 8), OFFER_MS
end

-- Gives the lock to a waiting claim and tells it by a push. It first gets an offer: if its process
-- hangs, the next one does not wait for long. `following` is the claim behind it, which learns
-- when to look by itself, in the same message if it is of the same process; so do others. Returns
-- whether the claim's process is there; if it is not, nothing has changed.
local function offer(at, claim, number, following, is_same, tells)
  local lasts = math.min(claim.ttl, offer_ms)
  local client = string.sub(claim.holder, 1, 8)
  local message =
    string.format('G\t%s\t%.0f\t%.0f\t%d\t%s', claim.holder, number, now_us, lasts, KEYS[at])
  if is_same then
    message = message .. '\nH\t' .. string.sub(following, 1, 22) .. '\t' .. (lasts + claim.delay)
  end
  if push(at, claim.holder, message) == 0 then
    drop(at, claim.holder, claim.mode)
    tell('a', at, claim.holder)
    return false
  end
  tell('g', at, claim.holder, number, lasts + claim.delay)
  if tells then
    tell_others(KEYS[at], KEYS[at + 1], client, lasts + claim.delay, now_ms, crowd_value)
  elseif (crowd_value or '') >= MIXED and redis.call('EXISTS', KEYS[at + 1]) == 0 then
    redis.call('DEL', told_key(KEYS[at + 1]))
  end
  return true
end

-- Grants every waiting claim whose turn it is, in order; whoever is not there any more is
-- skipped. Then those who are next are told when to look by themselves.
-- `value` is what stands in the lock's key, if that is known; false also for a lock whose key is
-- about to go. `me` is answered directly and gets `lease`. `moved` says that the head is new
-- already. Returns the fence of `me`, and whether anybody got the lock.
local function settle(at, value, me, lease, moved)
  local queue = KEYS[at + 1]
  local mine, given
  while not quarantined and fence do
    local heads, is_moved = read_heads(queue, crowd_value)
    moved = moved or is_moved
    if not heads[1] then
      break
    end
    local claim = read_claim(heads[1])
    if value == nil then
      value = look(at)
    end
    if not admits(at, value, claim.mode) then
      if moved and claim.holder ~= me then
        tell_others(KEYS[at], queue, '', (look_ahead(at)), now_ms, crowd_value)
      end
      break
    end
    if value == false and claim.mode ~= 'x' then
      -- What is left of the last holder must not be taken for the mark of those who share.
      redis.call('DEL', KEYS[at], KEYS[at + 2])
    end
    local number = raise_fence(claim.floor)
    local is_mine = claim.holder == me
    local time_given = is_mine and lease or math.min(claim.ttl, offer_ms) + claim.delay
    if not number or hold(at, claim, number, time_given) then
      break
    end
    -- Behind one who shares it, the next may be granted too.
    local following = claim.mode == 'x' and heads[2]
    local is_same = following and string.sub(following, 1, 8) == string.sub(claim.holder, 1, 8)
    local tells = following and not is_mine and (not is_same or (crowd_value or '') >= MIXED)
      and must_tell(queue, claim.text, is_same, time_given, now_ms)
    redis.call('ZREM', queue, claim.text)
    moved = true
    -- It is looked at again, but for a lock that is held alone now.
    value = nil
    if is_mine then
      mine, given = number, true
      tell('g', at, me, number, time_given)
    elseif offer(at, claim, number, following, is_same, tells) then
      given = true
      if claim.mode == 'x' then
        break
      end
    end
  end
  return mine, given
end

local function finish()
  if fence and fence ~= fence_before then
    redis.call('SET', KEYS[1], string.format('%.0f', fence), unpack(CLUSTER and { 'PX', 86400000 } or {}))
  end
  if #events > 0 then
    -- Whoever watches says where; on a cluster there is one database.
    local channel = string.match(tostring(watched), '^lockfast:events.*') or 'lockfast:events'
    redis.call('PUBLISH', channel, string.format('%.0f\n', now_us) .. table.concat(events, '\n'))
  end
end

-- The key in which a lock's bookkeeping is not what these scripts have written there.
local function find_rubbish(at)
  for offset, command in ipairs({ 'ZCARD', 'HLEN', 'HLEN' }) do
    if type(redis.pcall(command, KEYS[at + offset])) == 'table' then
      return KEYS[at + offset]
    end
  end
  for _, text in ipairs(redis.call('ZRANGE', KEYS[at + 1], 0, -1)) do
    if not read_claim(text).holder then
      return KEYS[at + 1]
    end
  end
  return KEYS[at + 2]
end

-- Does one step for one lock. Rubbish in its bookkeeping, or a server that does not let us write,
-- ends that step and nothing else of the batch: the second value says what is wrong.
local function attempt(step, at, ...)
  local done, answer = pcall(step, at, ...)
  if done then
    return answer
  end
  local text = type(answer) == 'table' and answer.err or tostring(answer)
  -- The server's complaints begin with a word in capitals.
  local complaint = string.match(text, '%u%u%u+ .*')
  if complaint and not string.find(complaint, '^WRONGTYPE') then
    return nil, complaint
  end
  return nil, 'LFCORRUPT ' .. find_rubbish(at)
end
