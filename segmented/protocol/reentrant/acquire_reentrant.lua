#!lua
-- uses shared/seen.lua
-- Enter a reentrant lock. Safe to run twice: an entry counts once, however often it is sent.
-- KEYS     1 lock (hash with PX: owner -> count)   2 fence (hash with PX: token, kind)   3 freed (channel, unused)
--          4 entries (set with PX: the holder ids that make up the count)
-- ARGV     1 owner   2 holder_id   3 ttl_ms   4 fence_ttl_ms   5 only_again: "1" leaves a free lock alone, else "0"
-- answers  {"wrong_kind"} if a lock of readers and writers has the name
--          {"held", remaining_ms; -1 if the key never expires, 0 when it is free}
--          {"acquired", token, "1" for a replay, else "0"}
local lock, fence, entries = KEYS[1], KEYS[2], KEYS[4]
local owner, holder_id, ttl_ms, fence_ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local is_held = redis.call('EXISTS', lock) == 1
local is_ours = redis.call('HEXISTS', lock, owner) == 1
local is_known = redis.call('SISMEMBER', entries, holder_id) == 1
local last = tonumber(redis.call('HGET', fence, 'token') or '0')

-- 1. the other kind of lock that is a hash
if redis.call('HEXISTS', lock, 'mode') == 1 then
  return { 'wrong_kind' }
end

-- 2. another owner's
if is_held and not is_ours then
  return { 'held', tostring(redis.call('PTTL', lock)) }
end
if not is_held and ARGV[5] == '1' then
  return { 'held', '0' }
end

local function lengthen(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, string.format('%.0f', ms))
  end
end

-- 3. free: entries of an owner that lost the lock no longer count. The token exceeds the last one even if that has
--    expired, because the server's clock has advanced. The same for a lock entered again, if its process has seen a
--    larger token, which the server forgot.
if not is_held then
  redis.call('DEL', entries)
  is_known = false
end
if not is_held or last == 0 or last < tonumber(seen_token) then
  local time = redis.call('TIME')
  last = next_token(last, tonumber(time[1]) * 1000000 + tonumber(time[2]))
  redis.call('HSET', fence, 'token', string.format('%.0f', last), 'kind', 'reentrant')
end

-- 4. in: again, for the first time, or unchanged
if not is_known then
  redis.call('SADD', entries, holder_id)
  redis.call('HINCRBY', lock, owner, 1)
end
lengthen(lock, ttl_ms)
lengthen(entries, redis.call('PTTL', lock))
lengthen(fence, fence_ttl_ms)
return { 'acquired', string.format('%.0f', last), is_known and '1' or '0' }
