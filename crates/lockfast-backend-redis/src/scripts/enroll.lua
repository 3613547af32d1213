-- Registers a connection: from now on, no command of an earlier connection of this client grants
-- anything. With the quarantine on it also writes down which server this is; when that was not
-- known, or was another, data may have been lost and nothing is granted for a while.
--
-- KEYS  client, guard
-- ARGV  link, label, identity or "", longest lease in ms, how long to keep the label in ms; of a connection that was
--       registered before also the link that stands in its place, or "-" for none
-- Answers for how many ms nothing is granted.

-- When another stands there by now, this comes late, of a connection that was given up.
if ARGV[6] then
  local known = redis.pcall('GET', KEYS[1])
  if string.sub(type(known) == 'string' and known or '-', 1, 8) ~= ARGV[6] then
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[5])
if ARGV[3] == '' then
  return 0
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local guard = redis.pcall('GET', KEYS[2]) or ''
if type(guard) == 'table' then
  return redis.error_reply('LFCORRUPT ' .. KEYS[2])
end
local identity, ends, longest = string.match(guard, '^(%S+) (%d+) (%d+)$')
if identity ~= ARGV[3] then
  ends = now_ms + math.max(tonumber(ARGV[4]), tonumber(longest or 0))
  redis.call('SET', KEYS[2], string.format('%s %.0f %s', ARGV[3], ends, ARGV[4]))
end
return math.max(tonumber(ends) - now_ms, 0)
