#!lua
-- uses shared/seen.lua
-- uses shared/line.lua
-- Take a named lock. Safe to run twice: a repeat by the same holder renews the lease and keeps its token.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: token, kind, holder, releaser, delay, line)
--          3 freed (channel)   4 line (zset with PX: a waiting process -> server us at which it began to wait)
-- ARGV     1 holder_id   2 lease_ms: ttl and delay   3 delay_ms: how long the name stays closed after an expired lease
--          4 fence_ttl_ms
--          5 asked (shared/line.lua): "<bounds> <party>" of a process that waits, with "*" before the party if it has not
--          waited yet; "*" of a caller that has not waited and keeps no place, "" of one that will not wait
-- answers  one string each, which is faster to parse than a list:
--          "acquired <token> <1 for a replay, else 0>"
--          "held <remaining_ms; -1 if the key never expires> <1 during the last holder's delay, else 0>", and of a
--          process that waits also " <number of processes before it in the line>"
--          "wrong_kind 0 0" if a fair lock has the name, whose key looks the same
local HOUR_US = 3600000000
local lock, fence, freed = KEYS[1], KEYS[2], KEYS[3]
local holder_id, lease_ms, delay_ms = ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('SET', lock, holder_id, 'NX', 'PX', lease_ms, 'GET')

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- 1. another holder's, or closed during the delay
if holder and holder ~= holder_id then
  local remaining_ms = redis.call('PTTL', lock)
  local noted = redis.call('HMGET', fence, 'delay', 'kind', 'holder', 'line')
  if noted[2] == 'fair' and noted[3] == holder then
    return 'wrong_kind 0 0'
  end
  local delay, whose = string.match(noted[1] or '', '^(%d+) (.*)$')
  local is_delayed = whose == holder and remaining_ms >= 0 and remaining_ms <= tonumber(delay)
  local answer = 'held ' .. tostring(remaining_ms) .. (is_delayed and ' 1' or ' 0')
  local line = open_line(KEYS[4], fence, freed, ARGV[5])
  if line.party then
    answer = answer .. ' ' .. keep_place(line, noted[4], now_us(), true)
    if not noted[4] and redis.call('PTTL', fence) < 0 then -- another client holds the lock
      redis.call('PEXPIRE', fence, ARGV[4])
    end
  end
  return answer
end

-- 2. the caller holds it already: the reply was lost, or the caller asks again
local last = holder and redis.call('HGET', fence, 'token')
if last then
  token_in(last, fence)
  redis.call('PEXPIRE', lock, lease_ms)
  return 'acquired ' .. last .. ' 1'
end

-- 3. free
local noted = redis.pcall('HMGET', fence, 'token', 'line')
local is_read, token = pcall(token_in, noted[1], fence)
if noted.err or not is_read then -- the key has another type, or a token that cannot be read
  redis.call('DEL', lock)
  return noted.err and noted or { err = 'UNREADABLE token ' .. fence }
end
local found, at_us = noted[1], now_us()
local line = noted[2] and open_line(KEYS[4], fence, freed, ARGV[5]) -- only while processes wait, for speed
local left_ms = line and left_to_first(line, noted[2], at_us, 1, 1)
if left_ms then
  redis.call('DEL', lock)
  local free_in_ms, ahead = wait_behind(line, noted[2], at_us, left_ms)
  return string.format('held %.0f 0%s', free_in_ms, ahead and ' ' .. ahead or '')
end
token = string.format('%.0f', next_token(token, at_us))
if delay_ms == '0' then
  redis.call('HSET', fence, 'token', token, 'kind', 'lock')
else
  redis.call('HSET', fence, 'token', token, 'kind', 'lock', 'delay', delay_ms .. ' ' .. holder_id)
end
-- it lives a day longer than the lease; an hour less is not worth a write
if not found or at_us - tonumber(found) > HOUR_US or tonumber(lease_ms) * 1000 > HOUR_US then
  redis.call('PEXPIRE', fence, ARGV[4])
end
if line then
  tell_following(line, tonumber(lease_ms))
end
return 'acquired ' .. token .. ' 0'
