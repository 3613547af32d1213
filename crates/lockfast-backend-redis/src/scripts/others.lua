-- What every script that gives a lock to a waiting claim knows of the processes behind the claims: a
-- claim starts with the eight characters of its client.
--
-- What stands in the crowd: 1 some lock has a queue; 3 and several clients wait for it; 4 and some
-- client is marked as hung. It never goes back before it expires.

local MIXED, SOME_HUNG = '3', '4'
-- Stands where a client's connection is named, so that whatever it asks makes it register anew.
local HUNG = 'hung!!!!'
-- How many processes are told when to look, and among how many claims they are looked for.
local TOLD_MAX, LOOK_AHEAD = 8, 16
-- Of clients, as far as this call knows.
local hung = {}

local function publish(lock, client, message)
  if CLUSTER then
    return redis.call('SPUBLISH', 'lockfast:{' .. lock .. '}:push:' .. client, message)
  end
  return redis.call('PUBLISH', 'lockfast:push:' .. client, message)
end

-- Whether the client of a claim did not take what it was given, and was not heard of since.
local function is_hung(text, crowd_value)
  local client = string.sub(text, 1, 8)
  if hung[client] == nil and not CLUSTER and (crowd_value or '') >= SOME_HUNG then
    local record = redis.pcall('GET', 'lockfast:client:' .. client)
    hung[client] = type(record) == 'string' and string.sub(record, 1, 8) == HUNG
  end
  return hung[client]
end

-- The first two claims of a queue, without those of clients that hang: these come back, with their
-- tickets, when they are heard of. The second value is whether there were such.
local function read_heads(queue, crowd_value)
  local is_moved = false
  while true do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    if not heads[1] or not is_hung(heads[1], crowd_value) then
      return heads, is_moved
    end
    redis.call('ZREM', queue, heads[1])
    is_moved = true
  end
end

-- The key that is there while several clients wait for a lock. It says until when those who were told
-- last do not look, the last ticket among them, and who has not looked yet: "ends.ticket", then for
-- each " when:claim".
local function told_key(queue)
  return string.sub(queue, 1, -6) .. 'told'
end

-- For how long those who were told last do not look yet, and the last ticket among them; nil if all
-- who wait are of one client. The third value is all that stands there.
local function read_told(queue, now_ms)
  local told = redis.pcall('GET', told_key(queue))
  told = type(told) == 'string' and told or ''
  local ends, ticket = string.match(told, '^(%d+)%.(%d+)')
  return ends and tonumber(ends) - now_ms, tonumber(ticket or 0), told
end

-- Whether others must be told when the claim `text`, which is still in the queue, gets the lock for
-- `ms`: unless all are of its process, or somebody was told already who is behind it and looks before
-- that. `is_same` says that the next one is of its process.
local function must_tell(queue, text, is_same, ms, now_ms)
  local left, last_told = read_told(queue, now_ms)
  if not left or left < 1 or left > ms then
    return left or not is_same
  end
  return tonumber(redis.call('ZSCORE', queue, text)) >= last_told
end

-- Lets other processes look when what `client` has been given is over, in case it hangs: each once,
-- and those that are last in line first, so that they need not be told again soon. Those that hang
-- are not told.
local function tell_others(lock, queue, client, ms, now_ms, crowd_value)
  if ms < 1 then
    -- It never ends by itself.
    return
  end
  local seen, count, last = { [client] = true }, 0, 0
  local silent = {}
  for at, text in string.gmatch(select(3, read_told(queue, now_ms)), ' (%d+):([^ ]+)') do
    silent[text] = at
  end
  local awaited = {}
  local function consider(entries)
    for i = #entries - 1, 1, -2 do
      local other = string.sub(entries[i], 1, 8)
      if not seen[other] and count < TOLD_MAX and not is_hung(entries[i], crowd_value) then
        seen[other] = true
        local message = 'H\t' .. string.sub(entries[i], 1, 22) .. '\t' .. ms .. '\t' .. client
        if publish(lock, other, message) > 0 then
          count = count + 1
          last = math.max(last, tonumber(entries[i + 1]))
          -- Who was told before and has not looked is waited for since then.
          local at = silent[entries[i]] or string.format('%.0f', now_ms + ms)
          awaited[count] = ' ' .. at .. ':' .. entries[i]
        end
      end
    end
    return #entries == 2 * LOOK_AHEAD
  end
  local is_long = consider(redis.call('ZRANGE', queue, -LOOK_AHEAD, -1, 'WITHSCORES'))
  if is_long then
    consider(redis.call('ZRANGE', queue, 0, LOOK_AHEAD - 1, 'WITHSCORES'))
  end
  local place = 2 * LOOK_AHEAD
  while is_long and count == 0 do
    -- All of these are of one process, or of none: somebody else will do.
    local entries = redis.call('ZRANGE', queue, place, place, 'WITHSCORES')
    is_long = entries[1] ~= nil
    consider(entries)
    place = 2 * place
  end
  if count == 0 then
    redis.call('DEL', told_key(queue))
  else
    local told = string.format('%.0f.%.0f', now_ms + ms, last) .. table.concat(awaited)
    redis.call('SET', told_key(queue), told, 'PX', math.max(ms, 60000))
  end
end
