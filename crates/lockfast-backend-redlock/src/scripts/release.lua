-- Gives locks back on this node, many in one call, and calls those who wait.
--
-- KEYS  watch, client, crowd; then each lock itself. Its fence and who waits for it are found
--       beside it.
-- ARGV  link; how ("1" holds end, "0" acquisitions, of which nobody needs to hear, "2" one try of each that goes
--       on); then for each lock HOLDER.FENCE with the highest fence that the holder proposed, or HOLDER
-- Answers one entry per lock: 1 released, 0 the holder did not have it, or why it has yet to be told so. A single
-- lock that is released is answered 1 alone, because a table costs as much as a call.

local DAY_MS = 86400000
local AHEAD_US = 60000000
local KEYS, ARGV = KEYS, ARGV
local call, sub = redis.call, string.sub
local found = call('MGET', unpack(KEYS))
-- A command of a connection that was given up must not take effect late.
if not found[2] or sub(found[2], 1, 8) ~= ARGV[1] then
  return redis.error_reply('LFSTALE ' .. sub(found[2] or '-', 1, 8))
end
local watched, crowded = found[1], found[3]
local is_usual = not watched and not crowded
local answers, gone, left = {}, {}, {}

-- The most frequent case, with as little as can be: locks that their holders have, and nobody
-- watches or waits.
for at = 4, #KEYS do
  if is_usual and found[at] == ARGV[at - 1] then
    answers[at - 3] = 1
    gone[#gone + 1] = KEYS[at]
  else
    left[#left + 1] = at
  end
end
-- What was named twice was released once.
local function delete()
  if call('DEL', unpack(gone)) < #gone then
    local seen = {}
    for at = 4, #KEYS do
      if answers[at - 3] == 1 then
        answers[at - 3] = seen[KEYS[at]] and 0 or 1
        seen[KEYS[at]] = true
      end
    end
  end
end

if #left == 0 then
  delete()
  return #KEYS == 4 and 1 or answers
end

local events, calls = {}, {}

-- Who knows a holder can release what it holds, so others hear a digest of it.
local function tag(holder)
  return sub(redis.sha1hex(holder), 1, 16)
end

local function tell(kind, fence, holder, key)
  if watched then
    events[#events + 1] = kind .. '\t' .. fence .. '\t' .. sub(holder, 1, 8) .. '\t' .. tag(holder) .. '\t0\t' .. key
  end
end

for _, at in ipairs(left) do
  local key, value = KEYS[at], found[at]
  local holder, proposal = sub(ARGV[at - 1], 1, 22), sub(ARGV[at - 1], 24)
  local callers = 'lockfast:{' .. key .. '}:callers'
  local own = value and sub(value, 1, 23) == holder .. '.' and sub(value, 24)
  -- A try that was undone late must not end a later one of the same holder.
  if own and (proposal == '' or (tonumber(own) or 0) <= tonumber(proposal)) then
    answers[at - 3] = 1
    gone[#gone + 1] = key
    tell('r', own, holder, key)
    if crowded and ARGV[2] == '1' then
      calls[#calls + 1] = callers
    end
  else
    answers[at - 3] = 0
    if not value and proposal ~= '' then
      -- Whatever asked for it and is still on its way comes too late. What this node would have
      -- refused as too far ahead is none of its fences.
      local fence = 'lockfast:{' .. key .. '}:fence'
      local seen = redis.pcall('GET', fence) or '0'
      local time = call('TIME')
      if type(seen) == 'string' and tonumber(seen) and tonumber(seen) < tonumber(proposal)
        and tonumber(proposal) <= time[1] * 1000000 + time[2] + AHEAD_US then
        -- A server without memory does not take it, but gives back all the rest.
        local raised = redis.pcall('SET', fence, proposal, 'PX', DAY_MS)
        if raised.err then
          answers[at - 3] = raised
        end
      end
    end
  end
  -- Rubbish in place of those who wait must not keep a lock from being released.
  if crowded and ARGV[2] ~= '2' and redis.pcall('ZREM', callers, holder) == 1 and not own then
    tell('a', '', holder, key)
  end
end
if #gone > 0 then
  delete()
end
-- The first is to try now; the second some time later, in case the first does not. They are of two processes:
-- one that does not heed its call would not heed the other either.
for _, callers in ipairs(calls) do
  local first
  for _, holder in ipairs(redis.pcall('ZRANGE', callers, 0, 31)) do
    local client = sub(holder, 1, 8)
    if client ~= first then
      if call('PUBLISH', 'lockfast:push:' .. client, 'C\t' .. tag(holder) .. '\t' .. (first and 1 or 0)) == 0 then
        call('ZREM', callers, holder)
      elseif first then
        break
      else
        first = client
      end
    end
  end
end
if #events > 0 then
  local time = call('TIME')
  call('PUBLISH', watched,
    string.format('E\n%.0f\n', time[1] * 1000000 + time[2]) .. table.concat(events, '\n'))
end
return answers
