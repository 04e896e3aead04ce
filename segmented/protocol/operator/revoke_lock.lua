#!lua flags=allow-oom
-- uses shared/operator.lua
-- uses */kind.lua
-- End every lease on a name of any kind and any lock-delay, and wake the waiters. It writes no `releaser`, so that the old
-- holders' renewals and releases get "lost". Safe to run twice: a repeat with the same revoke_id gets the same answer and
-- leaves newer leases alone.
-- ARGV     1 revoke_id   2 fence_ttl_ms   3 place: "key" that may be anybody's, "segment" of a pool, or ""
-- answers  {"revoked", kind, token or ""}   {"free"}
--          {"wrong_kind", type or kind} if the key is not a lock, or one that only its own library can end
local revoke_id, fence_ttl_ms = ARGV[1], tonumber(ARGV[2])
local WOKEN_MAX = 16 -- waiters of a fair lock that are woken: the first in the queue gets it, whichever asks first

local id, was, its_token = string.match(redis.call('HGET', FENCE, 'revoked') or '', '^(%S+) (%S+) (%d*)$')
if id == revoke_id then
  return { 'revoked', was, its_token }
end
local kind, key_type = kind_at(ARGV[3])
if kind == nil then
  return { 'free' }
elseif not kind then
  return { 'wrong_kind', key_type or '' }
elseif ARGV[3] ~= '' and kind.name ~= 'compat' and kind.name ~= 'redis-py' then
  return { 'wrong_kind', kind.name }
end
local token = last_token(kind)

-- what earlier locks of other kinds have left under the name goes, too, and their waiters are woken
local keys, turns = { LOCK }, {}
for _, each in ipairs(KINDS) do
  for _, key in ipairs(each.companions or {}) do
    keys[#keys + 1] = key
  end
  for _, turn in ipairs(each.turns and each.turns() or {}) do
    turns[#turns + 1] = turn
  end
end

redis.call('DEL', unpack(keys))
redis.call('HSET', FENCE, 'revoked', revoke_id .. ' ' .. kind.name .. ' ' .. token)
if redis.call('PTTL', FENCE) < fence_ttl_ms then
  redis.call('PEXPIRE', FENCE, ARGV[2])
end

redis.pcall('PUBLISH', FREED, 'freed')
if kind.opened then
  redis.pcall('PUBLISH', kind.opened, 'freed')
end
local woken = 0
for _, turn in ipairs(turns) do -- a dead waiter is not reached
  local heard_by = redis.pcall('PUBLISH', turn, 'turn')
  woken = woken + (type(heard_by) == 'number' and heard_by or 0)
  if woken >= WOKEN_MAX then
    break
  end
end
return { 'revoked', kind.name, token }
