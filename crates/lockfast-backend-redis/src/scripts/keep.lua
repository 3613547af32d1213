-- Prolongs leases of locks that are held alone, many in one call, with as little as can be. The
-- rest is left to renew.lua: whoever does not have the lock, and whoever wants less time than is
-- left, because then the next one in the queue must look sooner.
--
-- KEYS  the locks
-- ARGV  for each lock: "holder.", lease in ms
-- Answers 1 if all were prolonged, 0 if some were not.

local found = redis.call('MGET', unpack(KEYS))
local is_all = 1
for i = 1, #KEYS do
  local value = found[i]
  if not value or string.sub(value, 1, 23) ~= ARGV[2 * i - 1]
    or redis.call('PEXPIRE', KEYS[i], ARGV[2 * i], 'GT') == 0 then
    is_all = 0
  end
end
return is_all
