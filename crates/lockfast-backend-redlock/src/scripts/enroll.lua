-- Registers a connection again, in the place of the one that the node knows: when that is another by now, this comes
-- late, of a connection that was given up.
--
-- KEYS  client
-- ARGV  the link that is expected there, or "-" for none; the own link; label; how long to keep both in ms
-- Answers 1 if it did, 0 otherwise.

local known = redis.pcall('GET', KEYS[1])
if string.sub(type(known) == 'string' and known or '-', 1, 8) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2] .. ARGV[3], 'PX', ARGV[4])
return 1
