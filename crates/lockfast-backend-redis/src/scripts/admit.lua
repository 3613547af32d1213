-- The acquisitions that acquire.lua could not serve. What they are answered:
--   the fence                       it has the lock
--   { 0, place, ms, now, who }      it waits; 0 is the head; what is in its way lasts so long, and
--                                   whose it is, if one client has it
--   { 1, … }                        taken, see view()
--   { 2, mode }                     others use the lock in a way that does not go with it
--   { 3, mode }                     the same holder has it in another mode
--   { 4, reason }                   it was revoked
--   { 5 } { 6 } { 7 }               floor too high, key of another type, fence exhausted
--   { 8, text }                     the server does not let us write

-- How many claims at either end of the queue are asked for their mode: it must not take longer in a
-- longer one. Those in between are found out when their turn comes, and wait for each other.
local MODES_MAX = 32

-- The mode in which others share the lock, if they do.
local function shared_mode(at, value)
  if value == MARK then
    local mode = redis.call('HGET', KEYS[at + 2], 'm')
    return assert(not mode or (is_mode(mode) and mode ~= 'x'), 'rubbish') and mode
  end
  local mode = find_mode(KEYS[at + 1], 0, MODES_MAX - 1)
  return mode or (find_mode(KEYS[at + 1], -MODES_MAX, -1))
end

-- The fence of a holder that has the lock already; its lease begins again.
local function repeat_hold(at, claim, value, lease)
  if value == MARK then
    local record = redis.call('HGET', KEYS[at + 2], claim.holder)
    if not record then
      return nil
    end
    local mode = redis.call('HGET', KEYS[at + 2], 'm')
    if mode ~= claim.mode then
      return { 3, mode }
    end
    local number = tonumber(string.match(record, '%d+$'))
    write_shared(at, claim.holder, number, lease)
    return number
  end
  if not value or string.sub(value, 1, 23) ~= claim.holder .. '.' then
    return nil
  end
  if claim.mode ~= 'x' then
    return { 3, 'x' }
  end
  redis.call('PEXPIRE', KEYS[at], lease)
  return tonumber(string.sub(value, 24))
end

-- A claim that has waited before has its old place. Returns the server's complaint, and the level of
-- the crowd.
local function enqueue(queue, claim, old_ticket)
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local ticket = now_us
  if last[2] and tonumber(last[2]) >= ticket then
    ticket = tonumber(last[2]) + 1
  end
  ticket = math.min(ticket, old_ticket or ticket)
  local done = redis.pcall('ZADD', queue, string.format('%.0f', ticket), claim.text)
  if type(done) == 'table' then
    return done.err
  end
  if not last[1] or string.sub(last[1], 1, 8) == string.sub(claim.text, 1, 8) then
    return nil, '1'
  end
  redis.call('SET', told_key(queue), '0.0', 'NX', 'PX', QUEUE_MS)
  return nil, MIXED
end

-- When a claim that waits looks next: when what is in its way ends, or when the others count on its
-- looking. Its client has looked now.
local function read_wait(at)
  local ms, client = look_ahead(at)
  if (crowd_value or '') < MIXED then
    return ms, client
  end
  local left, _, told = read_told(KEYS[at + 1], now_ms)
  if left then
    local mine = ' %d+:' .. string.gsub(caller, '%-', '%%-') .. '[^ ]*'
    local lasts = math.max(left, QUEUE_MS)
    redis.call('SET', told_key(KEYS[at + 1]), (string.gsub(told, mine, '')), 'PX', lasts)
    if left > 0 and (ms < 0 or left < ms) then
      ms = left
    end
  end
  return ms, client
end

-- Takes note of those who were told to look when `suspect` had not taken the lock, and did not.
local function doubt_all(at, suspect)
  doubt(suspect)
  local _, _, told = read_told(KEYS[at + 1], now_ms)
  for due, text in string.gmatch(told, ' (%d+):([^ ]+)') do
    if now_ms - tonumber(due) >= BRIEF_OFFER_MS and redis.call('ZSCORE', KEYS[at + 1], text) then
      doubt(string.sub(text, 1, 8))
    end
  end
end

local function refuse(at, value)
  local seen = view(at, value, now_ms)
  table.insert(seen, 1, 1)
  return seen
end

local function admit(at, claim, lease, may_wait, suspect, ticket)
  local queue = KEYS[at + 1]
  serve(claim.holder)
  local reason = redis.call('HGET', KEYS[at + 3], claim.holder)
  if reason then
    return { 4, reason }
  end
  local value = look(at)
  if value == nil then
    return { 6 }
  end
  local again = repeat_hold(at, claim, value, lease)
  if again then
    return again
  end
  if not value and suspect ~= '' then
    doubt_all(at, suspect)
  end
  local known, level = redis.call('ZSCORE', queue, claim.text), '1'
  if not known then
    local mode = claim.mode ~= 'x' and shared_mode(at, value)
    if mode and mode ~= claim.mode then
      return { 2, mode }
    end
    if claim.floor and claim.floor > now_us + 60000000 then
      return { 5 }
    end
    if redis.call('EXISTS', queue) == 0 and admits(at, value, claim.mode) then
      local number = raise_fence(claim.floor)
      local complaint = number and hold(at, claim, number, lease)
      if number and not complaint then
        tell('g', at, claim.holder, number, lease)
      end
      return complaint and { 8, complaint } or number or { 7 }
    end
    if value and not may_wait then
      return refuse(at, value)
    end
    local complaint
    complaint, level = enqueue(queue, claim, ticket)
    if complaint then
      return { 8, complaint }
    end
  end
  local number = settle(at, value, claim.holder, lease, false)
  if number then
    return number
  end
  if may_wait then
    redis.call('PEXPIRE', queue, QUEUE_MS)
    crowd(QUEUE_MS, level)
    if not known then
      tell('q', at, claim.holder)
    end
    local ms, client = read_wait(at)
    return { 0, redis.call('ZRANK', queue, claim.text), ms, now_us, client }
  end
  local was_head = redis.call('ZRANK', queue, claim.text) == 0
  redis.call('ZREM', queue, claim.text)
  if known then
    tell('a', at, claim.holder)
    if was_head then
      settle(at, nil, nil, nil, true)
    end
  end
  return refuse(at, look(at))
end

for _, i in ipairs(left) do
  local arg = 3 * i + 1
  local how, suspect, ticket = string.match(ARGV[arg + 2], '^(%d)%.?([^.]*)%.?(%d*)$')
  local answer, complaint =
    attempt(admit, 4 * i + 2, read_claim(ARGV[arg]), tonumber(ARGV[arg + 1]), how == '1' or how == '3',
      suspect, tonumber(ticket))
  answers[i] = complaint and { 8, complaint } or answer
end
finish()
return answers
