-- Gives locks back on this node, many in one call, and calls those who wait.
--
-- KEYS  watch, client; then for each lock: itself, fence, callers
-- ARGV  link; then for each lock: holder, the highest fence that it proposed or "", how ("1" a hold ends,
--       "0" an acquisition, of which nobody needs to hear, "2" one try of one that goes on)
-- Answers one entry per lock: 1 released, 0 the holder did not have it.

local DAY_MS = 86400000
local AHEAD_US = 60000000
local count = (#KEYS - 2) / 3
local wanted, queues = { KEYS[1], KEYS[2] }, {}
for i = 1, count do
  wanted[i + 2] = KEYS[3 * i]
  queues[i] = KEYS[3 * i + 2]
end
local found = redis.call('MGET', unpack(wanted))
-- A command of a connection that was given up must not take effect late.
if not found[2] or string.sub(found[2], 1, 8) ~= ARGV[1] then
  return redis.error_reply('LFSTALE this connection is not registered')
end
local crowded = redis.call('EXISTS', unpack(queues)) > 0
local answers, events, gone, calls = {}, {}, {}, {}

local function tell(kind, fence, holder, key)
  if found[1] then
    events[#events + 1] = kind .. '\t' .. fence .. '\t' .. holder .. '\t0\t' .. key
  end
end

for i = 1, count do
  local at, arg = 3 * i, 3 * i - 1
  local holder, proposal = ARGV[arg], ARGV[arg + 1]
  local value = found[i + 2]
  local own = value and string.sub(value, 1, 23) == holder .. '.' and string.sub(value, 24)
  -- A try that was undone late must not end a later one of the same holder.
  if own and (proposal == '' or tonumber(own) <= tonumber(proposal)) then
    answers[i] = 1
    gone[#gone + 1] = KEYS[at]
    tell('r', own, holder, KEYS[at])
    if crowded and ARGV[arg + 2] == '1' then
      calls[#calls + 1] = KEYS[at + 2]
    end
  else
    answers[i] = 0
    if not value and proposal ~= '' then
      -- Whatever asked for it and is still on its way comes too late. What this node would have
      -- refused as too far ahead is none of its fences.
      local seen = redis.pcall('GET', KEYS[at + 1]) or '0'
      local time = redis.call('TIME')
      if type(seen) == 'string' and tonumber(seen) and tonumber(seen) < tonumber(proposal)
        and tonumber(proposal) <= time[1] * 1000000 + time[2] + AHEAD_US then
        redis.call('SET', KEYS[at + 1], proposal, 'PX', DAY_MS)
      end
    end
  end
  if crowded and ARGV[arg + 2] ~= '2' and redis.call('ZREM', KEYS[at + 2], holder) == 1
    and not own then
    tell('a', '', holder, KEYS[at])
  end
end
if #gone > 0 then
  redis.call('DEL', unpack(gone))
end
-- The first is to try now; the second some time later, in case the first does not.
for _, callers in ipairs(calls) do
  local told = 0
  for _, holder in ipairs(redis.call('ZRANGE', callers, 0, 15)) do
    local channel = 'lockfast:push:' .. string.sub(holder, 1, 8)
    if redis.call('PUBLISH', channel, 'C\t' .. holder .. '\t' .. told) == 0 then
      redis.call('ZREM', callers, holder)
    else
      told = told + 1
      if told == 2 then
        break
      end
    end
  end
end
if #events > 0 then
  local time = redis.call('TIME')
  redis.call('PUBLISH', 'lockfast:events',
    string.format('E\n%.0f\n', time[1] * 1000000 + time[2]) .. table.concat(events, '\n'))
end
return answers
