#!lua flags=allow-oom
-- uses shared/clock.lua
-- Extend a permit, only if it is still the holder's; never re-creates it.
-- KEYS     1 lock (sorted set with PX: holder id -> end in ms)   2 fence (hash with PX: token, kind, permits)
--          3 freed (unused)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms: the number of permits is remembered for as long as one is held
-- answers  {"renewed"}   {"lost"}
local lock, fence, holder_id, ttl_ms, fence_ttl_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3]

if tonumber(redis.call('ZSCORE', lock, holder_id) or '0') <= now_ms then
  return { 'lost' }
end
redis.call('ZADD', lock, digits(now_ms + ttl_ms), holder_id)
redis.call('PEXPIREAT', lock, digits(tonumber(redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2])))
redis.call('PEXPIRE', fence, fence_ttl_ms)
return { 'renewed' }
