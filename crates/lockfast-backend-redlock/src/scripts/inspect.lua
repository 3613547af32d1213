-- Looks at locks on this node without changing them.
--
-- KEYS  for each lock: itself, callers
-- Answers one entry per lock: its value or nothing, the time left in ms, how many wait; 4 for a
-- key that is no lock.

local answers = {}
for i = 1, #KEYS, 2 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    answers[#answers + 1] = 4
  else
    local callers = redis.pcall('ZCARD', KEYS[i + 1])
    answers[#answers + 1] = { value, redis.call('PTTL', KEYS[i]), type(callers) == 'number' and callers or 0 }
  end
end
return answers
