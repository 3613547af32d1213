-- Takes locks, many in one call. This part serves those that are free and that nobody waits for;
-- what is left goes through the queue in admit.lua.
--
-- KEYS  fence, client, watch, guard, crowd; then for each lock: itself, queue, shared, revoked
-- ARGV  link, identity, longest lease; then for each lock: claim, lease in ms, how
--       ("0" not to wait, "1" to wait; "2" and "3" the same with a floor in the claim), of one that
--       has waited before also ".who.ticket": who was in its way, and its ticket, if it knows
-- Answers one entry per lock: the fence, or a table that says why not (admit.lua).

-- The most frequent case alone, with as few calls as can be: one free lock, to be held alone,
-- while nobody waits for any lock, watches or guards.
if not CLUSTER and #KEYS == 9 and ARGV[2] == '' and ARGV[6] < '2'
  and string.byte(ARGV[4], 24) == 120 then
  local found = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6])
  local fence, client = found[1], found[2]
  if fence and client and not found[3] and not found[4] and not found[5]
    and string.sub(client, 1, 8) == ARGV[1] and string.find(fence, '^%d+$') then
    local time = redis.call('TIME')
    local number = math.max(tonumber(fence) + 1, time[1] * 1000000 + time[2])
    if number < 9007199254740992 then
      local text = string.format('%.0f', number)
      -- Something that is no string looks free to MGET, but not to NX.
      if redis.call('SET', KEYS[6], string.sub(ARGV[4], 1, 23) .. text, 'NX', 'PX', ARGV[5]) then
        redis.call('SET', KEYS[1], text)
        return { number }
      end
    end
  end
end

local count = (#KEYS - 5) / 4
local locks, queues = {}, {}
for i = 1, count do
  local at = 4 * i + 2
  locks[i] = KEYS[at]
  queues[2 * i - 1] = KEYS[at + 1]
  queues[2 * i] = KEYS[at + 3]
end
for i = 1, 5 do
  locks[count + i] = KEYS[i]
end
local found = redis.call('MGET', unpack(locks))
local fence, client, watched, guard =
  found[count + 1], found[count + 2], found[count + 3], found[count + 4]
-- The crowd is there as long as anybody waits for any lock.
local all_idle = not found[count + 5] or redis.call('EXISTS', unpack(queues)) == 0

-- A command of a connection that was given up must not take effect late.
local is_stale = not client or string.sub(client, 1, 8) ~= ARGV[1]
if CLUSTER then
  -- There the key says by which connection the holder was released, if it was not known then.
  is_stale = client and client > ARGV[1]
  watched = redis.call('PUBSUB', 'NUMSUB', 'lockfast:watched')[2] > 0
end
if is_stale then
  return redis.error_reply('LFSTALE ' .. string.sub(client or '-', 1, 8))
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
if ARGV[2] ~= '' then
  local identity, ends, longest = string.match(guard or '', '^(%S+) (%d+) (%d+)$')
  if identity ~= ARGV[2] then
    return redis.error_reply('LFGUARD the server is not the one that was connected to')
  end
  if longest ~= ARGV[3] then
    return redis.error_reply('LFMAXTTL ' .. longest)
  end
  if tonumber(ends) * 1000 > now_us then
    return redis.error_reply(string.format('LFQUARANTINE %.0f', ends - now_us / 1000))
  end
end
if not string.find(fence or '0', '^%d+$') or (not fence and redis.call('EXISTS', KEYS[1]) == 1) then
  return redis.error_reply('LFCORRUPT ' .. KEYS[1])
end
fence = tonumber(fence or 0)

local answers, left, events = {}, {}, {}
local fence_before = fence
for i = 1, count do
  local arg = 3 * i + 1
  local claim = ARGV[arg]
  local idle = not found[i] and string.byte(claim, 24) == 120
    and (all_idle or redis.call('EXISTS', queues[2 * i - 1], queues[2 * i]) == 0)
  if idle and fence < 9007199254740991 and ARGV[arg + 2] < '2' then
    local number = fence + 1
    if number < now_us then
      number = now_us
    end
    local text = string.format('%.0f', number)
    -- Something that is no string looks free to MGET, but not to NX.
    if redis.call('SET', locks[i], string.sub(claim, 1, 23) .. text, 'NX', 'PX', ARGV[arg + 1]) then
      fence = number
      answers[i] = number
      if watched then
        events[#events + 1] = 'g\t' .. text .. '\t' .. string.sub(claim, 1, 8)
          .. '\t' .. ARGV[arg + 1] .. '\t' .. locks[i]
      end
    end
  end
  if not answers[i] then
    left[#left + 1] = i
  end
end
if #left == 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', fence), unpack(CLUSTER and { 'PX', 86400000 } or {}))
  if watched then
    local channel = string.match(tostring(watched), '^lockfast:events.*') or 'lockfast:events'
    redis.call('PUBLISH', channel, string.format('%.0f\n', now_us) .. table.concat(events, '\n'))
  end
  return answers
end
local quarantined = false
local crowd_value = found[count + 5]
