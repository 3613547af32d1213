-- Reads a value, or writes it if what is there is what was expected. A value is one string: its
-- version, which is the id of its write in 22 characters, a dot and the bytes.
--
-- KEYS  the lock of the same name, of which only the right to it matters; value; unless it is a
--       cluster: watch
-- ARGV  nothing to read; to write: expected version or "" for nothing, "id.bytes", for how many ms
--       it stays, "" for ever or "-" to remove it, which try of this write it is, client, "1" if
--       replicas must confirm it
-- Answers 1 its write is there; 0 nothing is there now; or what is there, which was read or is not
-- what was expected: { } nothing, { "version.bytes", ms left or -1 }.

local GONE_MS = 3600000
local key = KEYS[2]
local value = redis.pcall('GET', key)
if type(value) == 'table' and not string.find(value.err, '^WRONGTYPE') then
  return value
end
local version = type(value) == 'string' and string.match(string.sub(value, 1, 23), '^([%w_-]+)%.$')
if value and #(version or '') ~= 22 then
  return redis.error_reply('LFCORRUPT ' .. key)
end

local function show()
  return value and { value, redis.call('PTTL', key) } or {}
end

if #ARGV == 0 then
  return show()
end
local expected, record, stays = ARGV[1], ARGV[2], ARGV[3]
local id, try = string.sub(record, 1, 22), tonumber(ARGV[4])

-- An earlier try that arrives only now must not bring back what was removed meanwhile. Only what
-- expects nothing can: no version is there a second time.
if expected == '' and (not value or try > 1) then
  local gone = string.sub(key, 1, -6) .. 'gone:' .. id
  local last = tonumber(redis.call('GET', gone) or 1)
  if try < last then
    return show()
  elseif try > last then
    redis.call('SET', gone, ARGV[4], 'PX', GONE_MS)
  end
end

if version == id then
  if ARGV[6] == '1' then
    -- Replicas confirm only what this connection has written.
    redis.call('SET', key, value, 'KEEPTTL')
  end
  return 1
elseif (version or '') ~= expected then
  return show()
end

if stays == '-' then
  redis.call('DEL', key)
elseif stays == '' then
  redis.call('SET', key, record)
else
  redis.call('SET', key, record, 'PX', stays)
end

local watched
if CLUSTER then
  watched = redis.call('PUBSUB', 'NUMSUB', 'lockfast:watched')[2] > 0
else
  watched = redis.pcall('GET', KEYS[3])
  watched = type(watched) == 'string' and watched
end
if watched then
  local time = redis.call('TIME')
  local channel = string.match(tostring(watched), '^lockfast:events.*') or 'lockfast:events'
  redis.call('PUBLISH', channel, string.format('%.0f\n', time[1] * 1000000 + time[2])
    .. 'c\t-\t' .. ARGV[5] .. '\t0\t' .. KEYS[1])
end
return stays == '-' and 0 or 1
