-- Gives back locks that were held alone, many in one call, with as little as can be: they become
-- free, or go to the next one that waits to hold it alone (pass.lua). The rest is left to release.lua.
--
-- KEYS  fence, watch, crowd; then for each lock: itself, queue
-- ARGV  for each lock: "holder."
-- Answers one entry per lock: 1 released; 2 released, and somebody else has it now; 0 for
-- release.lua. Or -1: at the moment nothing is that simple. For a single lock its entry is all of
-- the answer, because a table costs as much as a call.

local call = redis.call
local count = (#KEYS - 3) / 2
local found
if count == 1 then
  found = call('MGET', KEYS[4], KEYS[2], KEYS[3])
  if found[1] and not found[2] and not found[3] and string.sub(found[1], 1, 23) == ARGV[1] then
    call('DEL', KEYS[4])
    return 1
  end
else
  local keys = {}
  for i = 1, count do
    keys[i] = KEYS[2 * i + 2]
  end
  keys[count + 1] = KEYS[2]
  keys[count + 2] = KEYS[3]
  found = call('MGET', unpack(keys))
end
if found[count + 1] then
  return -1
end
local crowd = found[count + 2]
