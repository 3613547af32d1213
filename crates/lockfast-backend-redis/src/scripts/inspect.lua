-- Looks at locks without changing them.
--
-- KEYS  for each lock: itself, queue, shared
-- Answers for each lock what view() says, or why not.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for i = 1, #KEYS, 3 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) ~= 'table' then
    local done, seen = pcall(view, i, value, now_ms)
    value = done and seen or redis.error_reply('LFCORRUPT ' .. KEYS[i + 1])
  end
  answers[#answers + 1] = value
end
return answers
