-- Begins every script of a cluster. While a slot moves, a node serves only what names a single
-- key. So a call that was sent on to another node (ASK) names only the first of its KEY_COUNT
-- keys as one; the others stand before its arguments, and each command must name one key too.
local KEYS, ARGV, redis = KEYS, ARGV, redis
if #KEYS < KEY_COUNT then
  local keys, arguments = { KEYS[1] }, {}
  for i, part in ipairs(ARGV) do
    if i < KEY_COUNT then
      keys[i + 1] = part
    else
      arguments[#arguments + 1] = part
    end
  end
  KEYS, ARGV = keys, arguments

  local server = redis
  local function call_each(call, command, ...)
    if command ~= 'MGET' and command ~= 'EXISTS' and command ~= 'DEL' then
      return call(command, ...)
    end
    local values, count = {}, 0
    for i, key in ipairs({ ... }) do
      if command ~= 'MGET' then
        count = count + server.call(command, key)
      else
        local value = server.pcall('GET', key)
        if type(value) == 'table' then
          if not string.find(value.err, '^WRONGTYPE') then
            return call('GET', key)
          end
          value = false
        end
        values[i] = value
      end
    end
    return command == 'MGET' and values or count
  end
  redis = {
    call = function(...) return call_each(server.call, ...) end,
    pcall = function(...) return call_each(server.pcall, ...) end,
    error_reply = server.error_reply,
  }
end
