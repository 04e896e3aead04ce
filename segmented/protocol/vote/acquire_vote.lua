#!lua
-- Take this server's vote for a lock that a majority of servers keeps. Safe to run twice: a repeat by the same holder
-- renews it. There is no token: servers that do not know of each other cannot agree on one.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: kind, round, releaser)   3 freed (channel, unused)
-- ARGV     1 holder_id   2 ttl_ms   3 round: of the holder's attempts   4 fence_ttl_ms
-- answers  {"held", remaining_ms; -1 if the key never expires, mark of the holder's attempt}
--          {"acquired", "1" for a replay, else "0"}
local lock, fence, holder_id, ttl_ms, round = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3])

local holder = redis.call('SET', lock, holder_id, 'NX', 'PX', ttl_ms, 'GET')

-- 1. another holder's. The mark is a digest, because any process that knows a holder id can release
if holder and holder ~= holder_id then
  local attempt = holder .. ' ' .. (redis.call('HGET', fence, 'round') or '')
  return { 'held', tostring(redis.call('PTTL', lock)), string.sub(redis.sha1hex(attempt), 1, 16) }
end

-- 2. ours already: a late request does not lower the round
if holder then
  redis.call('PEXPIRE', lock, ttl_ms)
  round = math.max(round, tonumber(redis.call('HGET', fence, 'round') or '0'))
end

-- 3. ours
local done = redis.pcall('HSET', fence, 'kind', 'quorum', 'round', string.format('%.0f', round))
if type(done) == 'table' then -- the key holds something else
  redis.call('DEL', lock)
  return done
end
redis.call('PEXPIRE', fence, ARGV[4])
return { 'acquired', holder and '1' or '0' }
