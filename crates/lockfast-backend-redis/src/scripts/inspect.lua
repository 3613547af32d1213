-- Looks at locks without changing them.
--
-- KEYS  for each lock: itself, queue, shared
-- Answers for each lock: value, time left, how many wait, now, and for a shared one its mode and
-- each holder with its end and fence.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for i = 1, #KEYS, 3 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    answers[#answers + 1] = value
  else
    local seen = { value, redis.call('PTTL', KEYS[i]), redis.call('ZCARD', KEYS[i + 1]), now_ms }
    if value == 'lockfast:shared' then
      seen[5] = redis.call('HGET', KEYS[i + 2], 'm') or ''
      local fields = redis.call('HGETALL', KEYS[i + 2])
      for j = 1, #fields, 2 do
        if #fields[j] == 22 then
          seen[#seen + 1] = fields[j]
          seen[#seen + 1] = fields[j + 1]
        end
      end
    end
    answers[#answers + 1] = seen
  end
end
return answers
