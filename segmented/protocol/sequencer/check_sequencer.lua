#!lua flags=no-writes
-- uses shared/operator.lua
-- uses */kind.lua
-- Return whether a lock of any kind is held by the generation of a token.
-- ARGV     1 token   2 mode: exclusive or shared
-- answers  {"wrong_kind"} if the key is no lock, or a semaphore: each of its permits has a token of its own
--          {"current"}   {"outdated", the token of who holds it; "" when nobody does, or the kind has none}
local token, mode = ARGV[1], ARGV[2]
local kind = kind_of_lock()
if kind == nil then
  return { 'outdated', '' }
elseif not kind or kind.generation == false then
  return { 'wrong_kind' }
end

local living, living_mode = last_token(kind), 'exclusive'
if kind.generation then
  living, living_mode = kind.generation()
end
if living == token and living_mode == mode then
  return { 'current' }
end
return { 'outdated', living }
