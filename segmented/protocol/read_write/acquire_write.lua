#!lua
-- uses shared/clock.lua
-- uses shared/seen.lua
-- uses shared/read_write.lua
-- uses shared/line.lua
-- Let a writer in if no other holder reads or writes; otherwise block new readers while it is present. Safe to run
-- twice: a repeat by the same holder renews its lease and keeps its token.
-- KEYS     1 lock (hash with PX: mode, token, holder)   2 fence (hash with PX: token, kind, line)
--          3 readers (sorted set: holder id -> end in ms)   4 writers (sorted set: waiting holder id -> end in ms)
--          5 freed (channel)   6 opened (channel, unused)   7 line (zset with PX: processes of waiting writers)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms   4 presence_ms; 0 for a writer that does not wait
--          5 asked: see shared/line.lua
-- answers  {"wrong_kind"} if another kind of lock has the name
--          {"acquired", token, "1" for a replay, else "0"}
--          {"held", ms until the lock is free, or until new readers must be blocked again}, and of a process that waits
--          also the number of processes before it in the line
local lock, fence, readers, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder_id, ttl_ms, fence_ttl_ms, presence_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local found = redis.call('HMGET', lock, 'mode', 'token', 'holder')
local mode, token, holder = found[1], found[2], found[3]
check_lock(lock, mode, token)

-- 1. a hash that is not ours
if not mode and redis.call('EXISTS', lock) == 1 then
  return { 'wrong_kind' }
end

-- 2. the caller holds it already
if mode == 'write' and holder == holder_id then
  redis.call('PEXPIRE', lock, ttl_ms)
  redis.call('PEXPIRE', fence, fence_ttl_ms)
  return { 'acquired', token, '1' }
end

local left_ms = 0
if mode == 'write' then
  left_ms = redis.call('PTTL', lock)
elseif mode == 'read' then
  local latest = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  left_ms = latest[2] and tonumber(latest[2]) - now_ms or 0
end

-- 3. another holder is in, or the lock is free and left to a writer of another process
local is_held = mode == 'write' or left_ms > 0
local noted = redis.call('HMGET', fence, 'token', 'line')
local last = not is_held and token_in(noted[1], fence)
redis.call('ZSCORE', writers, holder_id) -- fails for a key of another type before the first write
local line = open_line(KEYS[7], fence, KEYS[5], ARGV[5])
local left_to_ms = not is_held and left_to_first(line, noted[2], now_us, 1, 1)
if is_held or left_to_ms then
  local ahead
  if left_to_ms then
    left_ms, ahead = wait_behind(line, noted[2], now_us, left_to_ms)
  elseif line.party then
    ahead = keep_place(line, noted[2], now_us, true)
  end
  if ahead and redis.call('PTTL', fence) < 0 then
    redis.call('PEXPIRE', fence, fence_ttl_ms)
  end
  if presence_ms > 0 then
    redis.call('ZREMRANGEBYSCORE', writers, '-inf', digits(now_ms))
    redis.call('ZADD', writers, digits(now_ms + presence_ms), holder_id)
    local last_writer = redis.call('ZRANGE', writers, -1, -1, 'WITHSCORES')
    redis.call('PEXPIREAT', writers, digits(math.min(tonumber(last_writer[2]), 9007199254740991)))
    left_ms = math.min(left_ms, math.ceil(presence_ms / 3))
  end
  return { 'held', digits(left_ms), ahead }
end

-- 4. free
token = digits(next_token(last, now_us))
redis.call('ZREM', writers, holder_id)
redis.call('DEL', lock, readers)
redis.call('HSET', lock, 'mode', 'write', 'token', token, 'holder', holder_id)
redis.call('PEXPIRE', lock, ttl_ms)
redis.call('HSET', fence, 'token', token, 'kind', 'read_write')
redis.call('PEXPIRE', fence, fence_ttl_ms)
tell_following(line, tonumber(ttl_ms))
return { 'acquired', token, '0' }
