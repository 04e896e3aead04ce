#!lua flags=no-writes
-- uses shared/operator.lua
-- uses */kind.lua
-- Return whether a lock of any kind is held by the generation of a token.
-- ARGV     1 token   2 mode: exclusive or shared
-- answers  {"wrong_kind"} if the key is not a lock, or is a semaphore: each of its permits has its own token
--          {"current"}   {"outdated", the holder's token; "" if the lock is free, or its kind has no tokens}
local token, mode = ARGV[1], ARGV[2]
local kind = kind_of_lock()
if kind == nil then
  return { 'outdated', '' }
elseif not kind or kind.generation == false then
  return { 'wrong_kind' }
end

local current, current_mode = last_token(kind), 'exclusive'
if kind.generation then
  current, current_mode = kind.generation()
end
if current == token and current_mode == mode then
  return { 'current' }
end
return { 'outdated', current }
