-- What a script about one lock that needs the queue begins with.
--
-- KEYS  fence, client, watch, guard, crowd, lock, queue, shared, revoked
-- ARGV  link, identity, longest lease; then what the script says

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local fence = redis.pcall('GET', KEYS[1]) or '0'
fence = type(fence) == 'string' and string.find(fence, '^%d+$') and tonumber(fence)
local fence_before = fence
local watched = redis.pcall('GET', KEYS[3])
watched = type(watched) == 'string' and watched
if CLUSTER then
  watched = redis.call('PUBSUB', 'NUMSUB', 'lockfast:watched')[2] > 0
end
local quarantined = false
if ARGV[2] ~= '' then
  local identity, ends = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) ')
  quarantined = identity ~= ARGV[2] or tonumber(ends) * 1000 > now_us
end
local events = {}
local crowd_value = redis.pcall('GET', KEYS[5])
crowd_value = type(crowd_value) == 'string' and crowd_value
