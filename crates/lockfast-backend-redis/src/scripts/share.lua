-- Lets a holder that has a lock alone have it shared from now on, and those in who may share it.
-- Nothing else of its lease changes. See opening.lua.
--
-- ARGV  …, holder
-- Answers 1 it is shared; { 4, mode } it is used with permits; or why the holder does not have it,
-- see explain().

local at, holder = 6, ARGV[4]
-- How many claims are asked for their mode at a time.
local MODES_AT_ONCE = 128

-- How the holder has the lock in which `value` stands; nil if it does not.
local function read_hold(value)
  if value and string.sub(value, 1, 23) == holder .. '.' then
    return 'x'
  end
  local record = value == MARK and redis.call('HGET', KEYS[at + 2], holder)
  if record and tonumber(string.match(record, '^%d+')) > now_ms then
    local mode = redis.call('HGET', KEYS[at + 2], 'm')
    return assert(mode ~= 'x' and mode, 'rubbish')
  end
  return nil
end

-- How those who wait want to share the lock, if any of them does. All of them are asked: this is not
-- done often.
local function read_use()
  local first, mode, count = 0, nil, nil
  repeat
    mode, count = find_mode(KEYS[at + 1], first, first + MODES_AT_ONCE - 1)
    first = first + count
  until mode or count < MODES_AT_ONCE
  return mode
end

-- What a renewal would tell; but while the server lets holders write down again what it has
-- forgotten, it is not the last word that this one does not have it.
local function miss(value, is_known)
  local reason = redis.call('HGET', KEYS[at + 3], holder)
  if not reason and ARGV[2] ~= '' then
    if not is_known then
      return redis.error_reply('LFGUARD the server has lost data')
    end
    local identity, ends = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) ')
    if quarantined and identity == ARGV[2] then
      return redis.error_reply(string.format('LFQUARANTINE %.0f', ends - now_ms))
    end
  end
  return explain(reason, not reason and read_present(value, KEYS[at + 2], now_ms), is_known)
end

local function share()
  serve(holder)
  local found = redis.call('MGET', KEYS[at], KEYS[1], KEYS[2])
  local value, client = found[1], found[3]
  local mode = read_hold(value)
  if not mode then
    -- Without its fence, a lock of a cluster was forgotten.
    return miss(value, CLUSTER and found[2] or client)
  end
  local use = mode == 'x' and read_use() or mode
  assert(is_mode(use), 'rubbish')
  if use ~= 's' and use ~= 'x' then
    return { 4, use }
  elseif mode == 's' then
    return 1
  end
  -- A command of a connection that was given up must not take effect late. On a cluster it finds
  -- that its holder is gone.
  local link = string.sub(client or '-', 1, 8)
  if not CLUSTER and link ~= ARGV[1] then
    return redis.error_reply('LFSTALE ' .. link)
  end
  local left_ms = redis.call('PTTL', KEYS[at])
  if left_ms < 0 then
    -- Every lease of ours has an end.
    return redis.error_reply('LFCORRUPT ' .. KEYS[at])
  end
  left_ms = math.max(left_ms, 1)
  -- Whoever shared it before must not come back. The lock's own key is changed last, so that the
  -- holder keeps what it has if the server does not let us write.
  redis.call('DEL', KEYS[at + 2])
  local claim = { holder = holder, mode = 's' }
  local complaint = hold(at, claim, tonumber(string.sub(value, 24)), left_ms)
  assert(not complaint, complaint)
  redis.call('SET', KEYS[at], MARK, 'PX', left_ms)
  redis.call('PEXPIRE', KEYS[at + 2], left_ms)
  settle(at, MARK, nil, nil, false)
  return 1
end

local answer, complaint = attempt(share, at)
finish()
return complaint and redis.error_reply(complaint) or answer
