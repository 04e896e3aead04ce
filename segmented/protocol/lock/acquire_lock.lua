#!lua
-- uses shared/seen.lua
-- Take a named lock. Safe to run twice: a repeat by the same holder renews the lease and keeps its token.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: token, kind, holder, releaser, delay)
--          3 freed (channel, unused)
-- ARGV     1 holder_id   2 lease_ms: ttl and delay   3 delay_ms: how long the name stays closed after an expired lease
--          4 fence_ttl_ms
-- answers  one string each, which is faster to parse than a list:
--          "acquired <token> <1 for a replay, else 0>"
--          "held <remaining_ms; -1 if the key never expires> <1 during the last holder's delay, else 0>"
--          "wrong_kind 0 0" if a fair lock has the name, whose key looks the same
local HOUR_US = 3600000000
local lock, fence, holder_id, lease_ms, delay_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('SET', lock, holder_id, 'NX', 'PX', lease_ms, 'GET')

-- 1. another holder's, or closed during the delay
if holder and holder ~= holder_id then
  local remaining_ms = redis.call('PTTL', lock)
  local noted = redis.call('HMGET', fence, 'delay', 'kind', 'holder')
  if noted[2] == 'fair' and noted[3] == holder then
    return 'wrong_kind 0 0'
  end
  local delay, whose = string.match(noted[1] or '', '^(%d+) (.*)$')
  local is_delayed = whose == holder and remaining_ms >= 0 and remaining_ms <= tonumber(delay)
  return 'held ' .. tostring(remaining_ms) .. (is_delayed and ' 1' or ' 0')
end

-- 2. the caller holds it already: the reply was lost, or the caller asks again
local last = holder and redis.call('HGET', fence, 'token')
if last then
  redis.call('PEXPIRE', lock, lease_ms)
  return 'acquired ' .. last .. ' 1'
end

-- 3. free
local found = redis.pcall('HGET', fence, 'token')
if type(found) == 'table' then -- the key has another type
  redis.call('DEL', lock)
  return found
end
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local token = string.format('%.0f', next_token(tonumber(found or '0'), now_us))
if delay_ms == '0' then
  redis.call('HSET', fence, 'token', token, 'kind', 'lock')
else
  redis.call('HSET', fence, 'token', token, 'kind', 'lock', 'delay', delay_ms .. ' ' .. holder_id)
end
-- it lives a day longer than the lease; an hour less is not worth a write
if not found or now_us - tonumber(found) > HOUR_US or tonumber(lease_ms) * 1000 > HOUR_US then
  redis.call('PEXPIRE', fence, ARGV[4])
end
return 'acquired ' .. token .. ' 0'
