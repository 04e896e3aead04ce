#!lua flags=allow-oom
-- uses shared/clock.lua
-- Release a permit, only if it is still the holder's, and wake one waiter per process. Safe to run twice: a repeat
-- changes nothing and wakes no waiter.
-- KEYS     1 lock (sorted set with PX: holder id -> end in ms)   2 fence (unused)   3 freed (channel)
-- ARGV     1 holder_id
-- answers  {"released"}   {"lost"}
local lock, holder_id = KEYS[1], ARGV[1]

if tonumber(redis.call('ZSCORE', lock, holder_id) or '0') <= now_ms then
  return { 'lost' }
end
redis.call('ZREM', lock, holder_id)
local latest = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
if latest[2] then
  redis.call('PEXPIREAT', lock, digits(tonumber(latest[2])))
end
redis.pcall('PUBLISH', KEYS[3], 'freed')
return { 'released' }
