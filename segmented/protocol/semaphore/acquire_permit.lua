#!lua
-- Take one of a semaphore's permits. Safe to run twice: a repeat by the same holder renews its permit, takes no second
-- one, and gets a newer token.
-- KEYS     1 lock (sorted set with PX: holder id -> end in ms)   2 fence (hash with PX: token, kind, permits)
--          3 freed (channel, unused)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms   4 permits
-- answers  {"mismatch", permits} while permits are held under another number of permits
--          {"held", ms until a permit expires}
--          {"acquired", token, "1" for a replay, else "0", ms until one more may be taken; 0 when one is free}
local lock, fence = KEYS[1], KEYS[2]
local holder_id, ttl_ms, fence_ttl_ms, permits = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local after_now = '(' .. string.format('%.0f', now)
local held = redis.call('ZCOUNT', lock, after_now, '+inf')

-- 1. in use with another number
local known = redis.call('HGET', fence, 'permits')
if held > 0 and known and tonumber(known) ~= permits then
  return { 'mismatch', known }
end

local is_replay = tonumber(redis.call('ZSCORE', lock, holder_id) or '0') > now

-- 2. all are held
if held >= permits and not is_replay then
  local next_end = redis.call('ZRANGE', lock, after_now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return { 'held', string.format('%.0f', tonumber(next_end) - now) }
end

-- 3. taken; dead holders' permits are forgotten
redis.call('ZREMRANGEBYSCORE', lock, '-inf', string.format('%.0f', now))
redis.call('ZADD', lock, string.format('%.0f', now + ttl_ms), holder_id)
redis.call('PEXPIREAT', lock, string.format('%.0f', tonumber(redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2])))
local last = tonumber(redis.call('HGET', fence, 'token') or '0')
local token = string.format('%.0f', math.max(last + 1, tonumber(time[1]) * 1000000 + tonumber(time[2])))
redis.call('HSET', fence, 'token', token, 'kind', 'semaphore', 'permits', ARGV[4])
redis.call('PEXPIRE', fence, fence_ttl_ms)
local next_ms = 0
if redis.call('ZCARD', lock) >= permits then
  next_ms = tonumber(redis.call('ZRANGE', lock, 0, 0, 'WITHSCORES')[2]) - now
end
return { 'acquired', token, is_replay and '1' or '0', string.format('%.0f', next_ms) }
