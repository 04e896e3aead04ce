#!lua
-- uses shared/clock.lua
-- uses shared/seen.lua
-- uses shared/read_write.lua
-- Let a reader in, unless a writer holds the lock or waits for it. Readers that overlap share one token: it names the
-- phase in which no writer got in. Later ones get a new one if their process has seen a larger token, which the server
-- forgot. Safe to run twice: a repeat by the same holder renews its lease.
-- KEYS     1 lock (hash with PX: mode, token, holder)   2 fence (hash with PX: token, kind)
--          3 readers (sorted set: holder id -> end in ms)   4 writers (sorted set: waiting holder id -> end in ms)
--          5 freed (channel, unused)   6 opened (channel, unused)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms
-- answers  {"wrong_kind"} if another kind of lock has the name
--          {"held", ms until the writer's lease, or the last waiting writer's presence, ends}
--          {"acquired", token, "1" for a replay, else "0"}
local lock, fence, readers, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder_id, ttl_ms, fence_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local found = redis.call('HMGET', lock, 'mode', 'token')
local mode, token = found[1], found[2]
check_lock(lock, mode, token)

-- 1. a hash that is not ours
if not mode and redis.call('EXISTS', lock) == 1 then
  return { 'wrong_kind' }
end

-- 2. a writer is in
if mode == 'write' then
  return { 'held', tostring(redis.call('PTTL', lock)) }
end

local own_end = mode and tonumber(redis.call('ZSCORE', readers, holder_id) or '0') or 0
local is_replay = own_end > now_ms

-- 3. a writer waits, and we are not in yet
local last_writer = redis.call('ZRANGE', writers, -1, -1, 'WITHSCORES')
if not is_replay and last_writer[2] and tonumber(last_writer[2]) > now_ms then
  return { 'held', digits(tonumber(last_writer[2]) - now_ms) }
end

-- 4. the first reader of a phase: remains of an earlier phase no longer count
local is_first = not mode or redis.call('ZCOUNT', readers, '(' .. digits(now_ms), '+inf') == 0
if is_first or tonumber(token) < tonumber(seen_token) then
  local last = token_in(redis.call('HGET', fence, 'token'), fence)
  token = digits(next_token(last, now_us))
  if is_first then
    redis.call('DEL', lock, readers)
  end
  redis.call('HSET', lock, 'mode', 'read', 'token', token)
  redis.call('HSET', fence, 'token', token, 'kind', 'read_write')
end
if not is_first then
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', digits(now_ms))
end

-- 5. in; the keys live as long as the last reader's lease
redis.call('ZADD', readers, digits(now_ms + ttl_ms), holder_id)
local latest = tonumber(redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2])
latest = digits(math.min(latest, 9007199254740991)) -- another program may have written infinity
redis.call('PEXPIREAT', lock, latest)
redis.call('PEXPIREAT', readers, latest)
redis.call('PEXPIRE', fence, fence_ttl_ms)
return { 'acquired', token, is_replay and '1' or '0' }
