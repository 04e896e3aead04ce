#!lua flags=allow-oom
-- uses shared/operator.lua
-- End every lease on a name of any kind and any lock-delay, and wake the waiters. It writes no `releaser`, so that the old
-- holders' renewals and releases get "lost". Safe to run twice: a repeat with the same revoke_id gets the same answer and
-- leaves newer leases alone.
-- ARGV     1 revoke_id   2 fence_ttl_ms
-- answers  {"revoked", kind, token or ""}   {"wrong_kind"} if the key is not a lock   {"free"}
local revoke_id, fence_ttl_ms = ARGV[1], tonumber(ARGV[2])
local WOKEN_MAX = 16 -- waiters of a fair lock that are woken: the first in the queue gets it, whichever asks first
local LOOKED_AT_MAX = 1000

local id, was, its_token = string.match(redis.call('HGET', FENCE, 'revoked') or '', '^(%S+) (%S+) (%d*)$')
if id == revoke_id then
  return { 'revoked', was, its_token }
end
local kind = kind_of_lock()
if kind == nil then
  return { 'free' }
elseif not kind then
  return { 'wrong_kind' }
end
local token = last_token(kind)
local queue = redis.call('ZRANGE', QUEUE, 0, LOOKED_AT_MAX - 1)

redis.call('DEL', LOCK, READERS, ENTRIES)
redis.call('HSET', FENCE, 'revoked', revoke_id .. ' ' .. kind .. ' ' .. token)
if redis.call('PTTL', FENCE) < fence_ttl_ms then
  redis.call('PEXPIRE', FENCE, ARGV[2])
end

redis.call('PUBLISH', FREED, 'freed')
if kind == 'read_write' then
  redis.call('PUBLISH', OPENED, 'freed')
end
local woken = 0
for _, waiter in ipairs(queue) do -- a dead waiter is not reached
  woken = woken + redis.call('PUBLISH', TURN .. ':' .. waiter, 'turn')
  if woken >= WOKEN_MAX then
    break
  end
end
return { 'revoked', kind, token }
