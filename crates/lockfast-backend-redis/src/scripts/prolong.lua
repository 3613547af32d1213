-- Prolongs one lease on a node whose slot is moving away: such a node serves nothing that names
-- several keys, so this looks at the lock alone, and leaves what is not as simple to renew.lua.
--
-- KEYS  lock
-- ARGV  holder, lease in ms
-- Answers 1 renewed, 0 the holder does not have it alone.

local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 23) == ARGV[1] .. '.' then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
