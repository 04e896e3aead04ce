#!lua
-- uses shared/clock.lua
-- uses shared/seen.lua
-- Read a cached value, or take the lock to load it. Safe to run twice: a repeat by the same holder gets the same answer,
-- or releases the lock if a value has been written since.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: token, releaser, kept)   3 freed (channel)
--          4 cached (hash with PX: kind, body, refresh_at)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms   4 hold_off_ms: only one caller in this time gets to refresh a due value
-- answers  {"cached", kind, body}
--          {"held", remaining_ms; -1 if the key never expires}
--          {"acquired", token, "1" for a replay, else "0", kind, body; both "" if nothing is cached}
local lock, fence, freed, cached = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder_id, ttl_ms = ARGV[1], ARGV[2]

local holder = redis.call('GET', lock)
local found = redis.call('HMGET', cached, 'kind', 'body', 'refresh_at')
local kind, body, refresh_at = found[1], found[2], tonumber(found[3] or 'inf')
local last = redis.call('HGET', fence, 'token')
local last_token = token_in(last, fence)
local is_ours = holder == holder_id

-- 1. a value that is not due, or that another caller is refreshing
if kind and (now_ms < refresh_at or (holder and not is_ours)) then
  if is_ours then
    redis.call('DEL', lock)
    if last then
      redis.call('HSET', fence, 'releaser', holder_id)
    end
    redis.pcall('PUBLISH', freed, 'freed')
  end
  return { 'cached', kind, body }
end

-- 2. another caller is loading it
if holder and not is_ours then
  return { 'held', tostring(redis.call('PTTL', lock)) }
end

-- 3. the caller holds the lock already: the reply was lost, or the caller asks again
if is_ours and last then
  redis.call('PEXPIRE', lock, ttl_ms)
  return { 'acquired', last, '1', kind or '', body or '' }
end

-- 4. free: the token grows like that of the plain lock, whose fence this is
local token = digits(next_token(last_token, now_us))
redis.call('HSET', fence, 'token', token, 'kind', 'lock')
redis.call('HSETNX', fence, 'kept', token)
redis.call('PEXPIRE', fence, ARGV[3])
redis.call('SET', lock, holder_id, 'PX', ttl_ms)
if kind then
  redis.call('HSET', cached, 'refresh_at', digits(now_ms + tonumber(ARGV[4])))
end
return { 'acquired', token, '0', kind or '', body or '' }
