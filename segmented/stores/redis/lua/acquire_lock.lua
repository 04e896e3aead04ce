#!lua
-- Take a named lock. Safe to run twice: a repeat by the same holder renews the lease and keeps its token.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: token, releaser, delay)
--          3 freed (channel, unused)
-- ARGV     1 holder_id   2 lease_ms: ttl and delay   3 delay_ms: how long the name stays closed after a lease that lapsed
--          4 fence_ttl_ms
-- answers  one string each, which is quicker to read than a list:
--          "acquired <token> <1 when a replay else 0>"
--          "held <remaining_ms; -1 when the key never lapses> <1 when only the last holder's delay runs else 0>"
local lock, fence, holder_id, lease_ms, delay_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('SET', lock, holder_id, 'NX', 'PX', lease_ms, 'GET')

-- 1. somebody else's, or nobody's while the delay runs
if holder and holder ~= holder_id then
  local remaining_ms = redis.call('PTTL', lock)
  local delay, whose = string.match(redis.call('HGET', fence, 'delay') or '', '^(%d+) (.*)$')
  local is_delayed = whose == holder and remaining_ms >= 0 and remaining_ms <= tonumber(delay)
  return 'held ' .. tostring(remaining_ms) .. (is_delayed and ' 1' or ' 0')
end

-- 2. ours already: the reply was lost, or the caller asks again
local last = holder and redis.call('HGET', fence, 'token')
if last then
  redis.call('PEXPIRE', lock, lease_ms)
  return 'acquired ' .. last .. ' 1'
end

-- 3. it was free. Where no last token is known, the server's clock in microseconds is greater than any before: it did
--    not stand still, and no lock is granted a million times a second.
local token = redis.pcall('HINCRBY', fence, 'token', 1)
if type(token) == 'table' then -- the key holds something else
  redis.call('DEL', lock)
  return token
end
if token == 1 then
  local time = redis.call('TIME')
  token = tonumber(time[1]) * 1000000 + tonumber(time[2])
  redis.call('HSET', fence, 'token', string.format('%.0f', token))
  redis.call('PEXPIRE', fence, ARGV[4])
elseif token % 8 == 0 then -- now and then is enough: a fence that lapses does no harm
  redis.call('PEXPIRE', fence, ARGV[4])
end
if delay_ms ~= '0' then
  redis.call('HSET', fence, 'delay', delay_ms .. ' ' .. holder_id)
end
return string.format('acquired %.0f 0', token)
