#!lua
-- Take a named lock. Safe to run twice: a repeat by the same holder renews the lease and keeps its token.
-- KEYS     1 lock (string with PX: holder id)   2 fence (string with PX: last token, last releaser)
--          3 freed (channel, unused)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms
-- answers  {"acquired", token, "1" when a replay else "0"}
--          {"held", remaining_ms; -1 when the key never lapses}
local lock, fence = KEYS[1], KEYS[2]
local holder_id, ttl_ms, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('GET', lock)
local last, releaser = string.match(redis.call('GET', fence) or '', '^(%d+) ?(.*)$')
last = tonumber(last or '0')

-- 1. ours already: the reply was lost, or the caller asks again
if holder == holder_id and last > 0 then
  redis.call('PEXPIRE', lock, ttl_ms)
  redis.call('PEXPIRE', fence, fence_ttl_ms)
  return { 'acquired', string.format('%.0f', last), '1' }
end

-- 2. somebody else's
if holder and holder ~= holder_id then
  return { 'held', tostring(redis.call('PTTL', lock)) }
end

-- 3. free: the token grows past the last one even if that has lapsed, because the server's clock did not stand still
local time = redis.call('TIME')
local token = math.max(last + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('SET', lock, holder_id, 'PX', ttl_ms)
redis.call('SET', fence, string.format('%.0f', token) .. ' ' .. (releaser or ''), 'PX', fence_ttl_ms)
return { 'acquired', string.format('%.0f', token), '0' }
