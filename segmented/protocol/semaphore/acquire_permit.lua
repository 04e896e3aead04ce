#!lua
-- uses shared/clock.lua
-- uses shared/line.lua
-- Take one of a semaphore's permits. Safe to run twice: a repeat by the same holder renews its permit, takes no second
-- one, and gets a newer token.
-- KEYS     1 lock (sorted set with PX: holder id -> end in ms)   2 fence (hash with PX: token, kind, permits, line)
--          3 freed (channel)   4 line (zset with PX: waiting processes)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms   4 permits   5 asked: see shared/line.lua
-- answers  {"mismatch", permits} while permits are held under another number of permits
--          {"held", ms until a permit expires}, and of a process that waits also the number of processes before it
--          {"acquired", token, "1" for a replay, else "0", ms until one more may be taken; 0 when one is free}
local lock, fence = KEYS[1], KEYS[2]
local holder_id, ttl_ms, fence_ttl_ms, permits = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local after_now = '(' .. digits(now_ms)
local held = redis.call('ZCOUNT', lock, after_now, '+inf')

-- 1. in use with another number
local noted = redis.call('HMGET', fence, 'permits', 'token', 'line')
local known, line = noted[1], open_line(KEYS[4], fence, KEYS[3], ARGV[5])
if held > 0 and known and tonumber(known) ~= permits then
  return { 'mismatch', known }
end

local token = tonumber(noted[2] or '0')
if not (token and token >= 0 and token < 9007199254740992) then
  error({ err = 'UNREADABLE token ' .. fence }) -- a new one might be lower
end
local is_replay = tonumber(redis.call('ZSCORE', lock, holder_id) or '0') > now_ms

-- 2. all are held
if held >= permits and not is_replay then
  local next_end = redis.call('ZRANGE', lock, after_now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  local free_in_ms = digits(tonumber(next_end) - now_ms)
  if not line.party then
    return { 'held', free_in_ms }
  end
  local ahead = keep_place(line, noted[3], now_us, true)
  if redis.call('PTTL', fence) < 0 then
    redis.call('PEXPIRE', fence, fence_ttl_ms)
  end
  return { 'held', free_in_ms, ahead }
end

-- 3. one is free, but left to another process
local left_ms = not is_replay and left_to_first(line, noted[3], now_us, permits, permits - held)
if left_ms then
  local free_in_ms, ahead = wait_behind(line, noted[3], now_us, left_ms)
  return { 'held', digits(free_in_ms), ahead }
end

-- 4. taken; dead holders' permits are forgotten
redis.call('ZREMRANGEBYSCORE', lock, '-inf', digits(now_ms))
redis.call('ZADD', lock, digits(now_ms + ttl_ms), holder_id)
local latest = tonumber(redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2])
redis.call('PEXPIREAT', lock, digits(math.min(latest, 9007199254740991)))
token = digits(math.max(token + 1, now_us))
redis.call('HSET', fence, 'token', token, 'kind', 'semaphore', 'permits', ARGV[4])
redis.call('PEXPIRE', fence, fence_ttl_ms)
local next_ms = 0
if redis.call('ZCARD', lock) >= permits then
  next_ms = tonumber(redis.call('ZRANGE', lock, 0, 0, 'WITHSCORES')[2]) - now_ms
end
tell_following(line, next_ms)
return { 'acquired', token, is_replay and '1' or '0', digits(next_ms) }
