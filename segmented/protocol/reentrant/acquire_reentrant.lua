#!lua
-- uses shared/seen.lua
-- uses shared/line.lua
-- Enter a reentrant lock. Safe to run twice: an entry counts once, however often it is sent.
-- KEYS     1 lock (hash with PX: owner -> count)   2 fence (hash with PX: token, kind, line)   3 freed (channel)
--          4 entries (set with PX: the holder ids that make up the count)   5 line (zset with PX: waiting processes)
-- ARGV     1 owner   2 holder_id   3 ttl_ms   4 fence_ttl_ms   5 only_again: "1" leaves a free lock alone, else "0"
--          6 asked: see shared/line.lua
-- answers  {"wrong_kind"} if a lock of readers and writers has the name
--          {"held", remaining_ms; -1 if the key never expires, 0 when it is free}, and of a process that waits also
--          the number of processes before it in the line
--          {"acquired", token, "1" for a replay, else "0"}
local lock, fence, entries = KEYS[1], KEYS[2], KEYS[4]
local owner, holder_id, ttl_ms, fence_ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local is_held = redis.call('EXISTS', lock) == 1
local is_ours = redis.call('HEXISTS', lock, owner) == 1
local is_known = redis.call('SISMEMBER', entries, holder_id) == 1
local noted = redis.call('HMGET', fence, 'token', 'line')
local last = token_in(noted[1], fence)
local line = open_line(KEYS[5], fence, KEYS[3], ARGV[6])

local function lengthen(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, string.format('%.0f', ms))
  end
end

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- 1. the other kind of lock that is a hash
if redis.call('HEXISTS', lock, 'mode') == 1 then
  return { 'wrong_kind' }
end

-- 2. another owner's
if is_held and not is_ours then
  local remaining_ms = tostring(redis.call('PTTL', lock))
  if not line.party then
    return { 'held', remaining_ms }
  end
  local ahead = keep_place(line, noted[2], now_us(), true)
  lengthen(fence, fence_ttl_ms)
  return { 'held', remaining_ms, ahead }
end
if not is_held and ARGV[5] == '1' then
  return { 'held', '0' }
end

-- 3. free, but left to another process
local left_ms = not is_held and left_to_first(line, noted[2], now_us(), 1, 1)
if left_ms then
  local free_in_ms, ahead = wait_behind(line, noted[2], now_us(), left_ms)
  return { 'held', string.format('%.0f', free_in_ms), ahead }
end

-- 4. free: entries of an owner that lost the lock no longer count. The token exceeds the last one even if that has
--    expired, because the server's clock has advanced. The same for a lock entered again, if its process has seen a
--    larger token, which the server forgot.
if not is_held then
  redis.call('DEL', entries)
  is_known = false
end
if not is_known then
  redis.call('HINCRBY', lock, owner, 1) -- the first write for an owner again: fails if the count is no number
end
if not is_held or last == 0 or last < tonumber(seen_token) then
  last = next_token(last, now_us())
  redis.call('HSET', fence, 'token', string.format('%.0f', last), 'kind', 'reentrant')
end

-- 5. in: again, for the first time, or unchanged
if not is_known then
  redis.call('SADD', entries, holder_id)
end
lengthen(lock, ttl_ms)
lengthen(entries, redis.call('PTTL', lock))
lengthen(fence, fence_ttl_ms)
tell_following(line, ttl_ms)
return { 'acquired', string.format('%.0f', last), is_known and '1' or '0' }
