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

