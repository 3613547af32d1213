-- What everybody may see of a lock. `at` is the place of its first key: itself, queue, shared.

local MARK = 'lockfast:shared'

-- The lock as it is: value (false when it is free), time left, how many wait, now, and for a
-- shared one its mode and each holder with its end and fence.
local function view(at, value, now_ms)
  local seen = { value, redis.call('PTTL', KEYS[at]), redis.call('ZCARD', KEYS[at + 1]), now_ms }
  if value == MARK then
    seen[5] = redis.call('HGET', KEYS[at + 2], 'm') or ''
    local fields = redis.call('HGETALL', KEYS[at + 2])
    for j = 1, #fields, 2 do
      if #fields[j] == 22 then
        seen[#seen + 1] = fields[j]
        seen[#seen + 1] = fields[j + 1]
      end
    end
  end
  return seen
end
