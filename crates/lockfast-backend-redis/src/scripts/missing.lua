-- Why a holder does not have a lock in which `value` stands: { 0 } unknown; { 1, value } somebody else
-- has it; { 2, reason } revoked; { 3 } the server has lost data, as it knows nothing of its clients.
local function explain(reason, value, is_known)
  if reason then
    return { 2, reason }
  end
  if value then
    return { 1, value }
  end
  return is_known and { 0 } or { 3 }
end

-- Whether somebody has a lock that is shared, as far as this call knows.
local sharing = {}

-- What stands in a lock and still counts: in one that is shared what has ended is written down for a
-- while.
local function read_present(value, shared, now_ms)
  if value ~= 'lockfast:shared' then
    return value
  end
  if sharing[shared] == nil then
    sharing[shared] = false
    local fields = redis.call('HGETALL', shared)
    for i = 1, #fields, 2 do
      if #fields[i] == 22 and tonumber(string.match(fields[i + 1], '^%d+')) > now_ms then
        sharing[shared] = true
      end
    end
  end
  return sharing[shared] and value
end
