-- Prolongs leases, many in one call. It never creates one, but for a lease that the server has
-- forgotten while it grants nothing to others (the quarantine): that one is written down again.
--
-- KEYS  client, guard; then for each lock: itself, queue, shared, revoked
-- ARGV  link, identity; then for each lock: holder, lease in ms, "mode.fence" or ""
-- Answers one entry per lock: 1 renewed; a table that says why not, see explain(); an error if its
-- bookkeeping is rubbish.

local MARK = 'lockfast:shared'
local count = (#KEYS - 2) / 4
local locks = {}
for i = 1, count do
  locks[i] = KEYS[4 * i - 1]
end
locks[count + 1] = KEYS[1]
locks[count + 2] = KEYS[2]
local found = redis.call('MGET', unpack(locks))
local client, guard = found[count + 1], found[count + 2]
local now_ms

local function read_clock()
  if not now_ms then
    local time = redis.call('TIME')
    now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return now_ms
end

-- Whoever is next counts on the old end, and must look sooner.
local function hurry_next(lock, queue, lease)
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if head then
    local holder = string.match(head, '^[^.]+')
    local message = 'H\t' .. holder .. '\t' .. lease
    if CLUSTER then
      redis.call('SPUBLISH', 'lockfast:{' .. lock .. '}:push:' .. string.sub(holder, 1, 8), message)
    else
      redis.call('PUBLISH', 'lockfast:push:' .. string.sub(holder, 1, 8), message)
    end
  end
end

local function write_shared(lock, shared, holder, number, lease)
  sharing[shared] = true
  local ends = read_clock() + lease
  redis.call('HSET', shared, holder, string.format('%.0f.%s', ends, number))
  local first = redis.call('HGET', shared, 'e')
  if not first or ends < tonumber(first) then
    redis.call('HSET', shared, 'e', string.format('%.0f', ends))
  end
  if redis.call('PTTL', lock) < lease then
    redis.call('SET', lock, MARK, 'PX', lease)
    redis.call('PEXPIRE', shared, lease)
  end
end

local function is_quarantined()
  if ARGV[2] == '' or not client or string.sub(client, 1, 8) ~= ARGV[1] then
    return false
  end
  local identity, ends = string.match(guard or '', '^(%S+) (%d+) ')
  return identity == ARGV[2] and tonumber(ends) > read_clock()
end

local function reclaim(lock, shared, value, holder, lease, claim)
  local mode, number = string.match(claim, '^([^.]+)%.(%d+)$')
  if mode == 'x' and not value then
    return redis.call('SET', lock, holder .. '.' .. number, 'NX', 'PX', lease) and 1
  end
  if mode and mode ~= 'x' and (not value or value == MARK) then
    local present = value and redis.call('HGET', shared, 'm')
    if present and present ~= mode then
      return nil
    end
    redis.call('HSET', shared, 'm', mode)
    write_shared(lock, shared, holder, number, lease)
    return 1
  end
  return nil
end

local function renew(at, value, holder, lease, claim)
  local lock, queue, shared, revoked = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  local record = value == MARK and redis.call('HGET', shared, holder)
  if record then
    local ends, number = string.match(record, '^(%d+)%.(%d+)$')
    if tonumber(ends) > read_clock() then
      write_shared(lock, shared, holder, number, lease)
      if tonumber(ends) > read_clock() + lease then
        hurry_next(lock, queue, lease)
      end
      return 1
    end
  end
  local reason = redis.call('HGET', revoked, holder)
  if not reason and claim ~= '' and is_quarantined() then
    -- It may have been written down again for an earlier entry of this call.
    value = redis.call('GET', lock)
    if value and string.sub(value, 1, 23) == holder .. '.' then
      redis.call('PEXPIRE', lock, lease)
      return 1
    end
    local done = reclaim(lock, shared, value, holder, lease, claim)
    if done then
      return done
    end
  end
  return explain(reason, not reason and read_present(value, shared, read_clock()), client)
end

local answers = {}
for i = 1, count do
  local lock, arg = locks[i], 3 * i
  if found[i] and string.sub(found[i], 1, 23) == ARGV[arg] .. '.' then
    local before = redis.call('PTTL', lock)
    redis.call('PEXPIRE', lock, ARGV[arg + 1])
    if before > tonumber(ARGV[arg + 1]) then
      hurry_next(lock, KEYS[4 * i], ARGV[arg + 1])
    end
    answers[i] = 1
  else
    local at = 4 * i - 1
    local done, answer =
      pcall(renew, at, found[i], ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2])
    -- Rubbish in the bookkeeping of one lock is no matter of the others.
    answers[i] = done and answer or redis.error_reply('LFCORRUPT ' .. KEYS[at + 2])
  end
end
return answers
