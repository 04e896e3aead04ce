#!lua flags=no-writes
-- uses shared/operator.lua
-- Return whether a lock of any kind is held by the generation of a token.
-- ARGV     1 token   2 mode: exclusive or shared
-- answers  {"wrong_kind"} if the key is not a lock, or is a semaphore: each of its permits has its own token
--          {"current"}   {"outdated", the holder's token; "" if the lock is free, or its kind has no tokens}
local token, mode = ARGV[1], ARGV[2]
local kind = kind_of_lock()
if kind == nil then
  return { 'outdated', '' }
elseif not kind or kind == 'semaphore' then
  return { 'wrong_kind' }
end

local current, current_mode = last_token(kind), 'exclusive'
if kind == 'read_write' then
  local found = redis.call('HMGET', LOCK, 'token', 'mode')
  current, current_mode = found[1] or '', found[2] == 'read' and 'shared' or 'exclusive'
elseif kind == 'lock' then -- during the delay of a lost lease nobody holds it
  local delay_ms, whose = string.match(redis.call('HGET', FENCE, 'delay') or '', '^(%d+) (.*)$')
  if whose == redis.call('GET', LOCK) and redis.call('PTTL', LOCK) <= tonumber(delay_ms) then
    return { 'outdated', '' }
  end
end
if current == token and current_mode == mode then
  return { 'current' }
end
return { 'outdated', current }
