#!lua flags=no-writes
-- uses shared/operator.lua
-- Return whether a lock of any kind is held by the generation of a token.
-- ARGV     1 token   2 mode: exclusive or shared
-- answers  {"wrong_kind"} if the key is no lock, or a semaphore: each of its permits has a token of its own
--          {"current"}   {"outdated", the token of who holds it; "" when nobody does, or the kind has none}
local token, mode = ARGV[1], ARGV[2]
local kind = kind_of_lock()
if kind == nil then
  return { 'outdated', '' }
elseif not kind or kind == 'semaphore' then
  return { 'wrong_kind' }
end

local living, living_mode = last_token(kind), 'exclusive'
if kind == 'read_write' then
  local found = redis.call('HMGET', LOCK, 'token', 'mode')
  living, living_mode = found[1] or '', found[2] == 'read' and 'shared' or 'exclusive'
elseif kind == 'lock' then -- where only the delay of a lost lease runs, nobody holds it
  local delay_ms, whose = string.match(redis.call('HGET', FENCE, 'delay') or '', '^(%d+) (.*)$')
  if whose == redis.call('GET', LOCK) and redis.call('PTTL', LOCK) <= tonumber(delay_ms) then
    return { 'outdated', '' }
  end
end
if living == token and living_mode == mode then
  return { 'current' }
end
return { 'outdated', living }
