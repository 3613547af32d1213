-- Checks a fence and, if it is not stale, raises it and runs commands, all in one step.
-- KEYS[1]: where the highest fence is. ARGV[1]: the fence.
-- ARGV[2…]: commands, each as the number of its words and the words.
-- A command may have 7000 words: Lua cannot pass on many more, and would say so only when those before
-- it have run.
-- Answers the highest fence and what each command answered, or false for each that was not run.
local at = 2
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  if words > 7000 then
    return redis.error_reply('ERR a command of the gate has ' .. words .. ' words, at most 7000')
  end
  at = at + words + 1
end
local stored = redis.call('GET', KEYS[1])
local given = tonumber(ARGV[1])
local highest = given
if stored then
  highest = string.match(stored, '^%d+$') and tonumber(stored)
  if not highest then
    return redis.error_reply('ERR the key of the gate holds something that is no fence')
  end
end
local admitted = given >= highest
if admitted then
  highest = given
  redis.call('SET', KEYS[1], ARGV[1])
end
local answers = { highest }
at = 2
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = admitted and redis.call(unpack(ARGV, at + 1, at + words)) or false
  at = at + words + 1
end
return answers
