#!lua
-- uses shared/seen.lua
-- Take a named lock. Safe to run twice: a repeat by the same holder renews the lease and keeps its token.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: token, kind, holder, releaser, delay, line)
--          3 freed (channel)   4 line (zset with PX: a waiting process -> server us at which it began to wait)
-- ARGV     1 holder_id   2 lease_ms: ttl and delay   3 delay_ms: how long the name stays closed after an expired lease
--          4 fence_ttl_ms
--          5 line_bounds: "newcomers_max waiters_max passed_ms left_ms line_ttl_ms party", one item because it is shorter.
--          newcomers_max, waiters_max: turns of others before the lock is left to the first of the line; passed_ms: as
--          much time at most; left_ms: for how long; party: the caller's process, which waits, "*" for a caller that
--          has not waited, "" for one that will not: it takes a free lock also if others wait
-- answers  one string each, which is faster to parse than a list:
--          "acquired <token> <1 for a replay, else 0>"
--          "held <remaining_ms; -1 if the key never expires> <1 during the last holder's delay, else 0>", and of a
--          process that waits also " <number of processes before it in the line>"
--          "wrong_kind 0 0" if a fair lock has the name, whose key looks the same
-- The fence's field `line` is "<turns of others> <since ms> <left to the first until ms, or 0>", while processes wait.
local HOUR_US = 3600000000
local lock, fence, freed, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder_id, lease_ms, delay_ms = ARGV[1], ARGV[2], ARGV[3]
local newcomers_max, waiters_max, passed_ms, left_ms, line_ttl_ms, party =
  string.match(ARGV[5], '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')

local waits = party ~= '' and party ~= '*'

local holder = redis.call('SET', lock, holder_id, 'NX', 'PX', lease_ms, 'GET')

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function write_line(turns, since_ms, until_ms)
  redis.call('HSET', fence, 'line', string.format('%.0f %.0f %.0f', turns, since_ms, until_ms))
end

-- Keep the place of the caller's process, which waits; return how many are ahead.
local function keep_place(at_us)
  redis.call('ZADD', line, 'NX', string.format('%.0f', at_us), party)
  redis.call('PEXPIRE', line, line_ttl_ms)
  return redis.call('ZRANK', line, party)
end

-- Return for how many ms the free lock is left to the first of the line; nil if the caller may take it.
local function left_to_first(noted, at_us)
  local now_ms = math.floor(at_us / 1000)
  local turns, since_ms, until_ms = string.match(noted, '^(%d+) (%d+) (%d+)$')
  turns, since_ms, until_ms = tonumber(turns or '0'), tonumber(since_ms or '0'), tonumber(until_ms or '0')
  local found = redis.pcall('ZRANGE', line, 0, 2)
  local first = found[1]
  -- the first has not come: another one is the first now
  if first and until_ms > 0 and until_ms <= now_ms then
    redis.call('ZREM', line, first)
    turns, since_ms, until_ms, first, found[2] = 0, now_ms, 0, found[2], found[3]
  end
  if not first then -- nobody waits, or the key has another type
    redis.call('HDEL', fence, 'line')
    return nil
  end
  if first == party then -- its turn
    redis.call('ZREM', line, party)
    if found[2] then
      write_line(0, now_ms, 0)
      redis.pcall('PUBLISH', freed, 'first:' .. found[2] .. ' ' .. lease_ms)
    else
      redis.call('HDEL', fence, 'line')
    end
    return nil
  end
  local turns_max = tonumber(waits and waiters_max or newcomers_max)
  if until_ms == 0 and turns < turns_max and now_ms < since_ms + tonumber(passed_ms) then
    write_line(turns + 1, since_ms, 0)
    if waits then
      redis.call('ZREM', line, party)
    end
    return nil
  end
  if until_ms == 0 then
    until_ms = now_ms + tonumber(left_ms)
    write_line(turns, since_ms, until_ms)
    redis.pcall('PUBLISH', freed, 'turn:' .. first)
  end
  return until_ms - now_ms
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
  if waits then
    local at_us = now_us()
    answer = answer .. ' ' .. keep_place(at_us)
    if not noted[4] then
      write_line(0, math.floor(at_us / 1000), 0)
      if redis.call('PTTL', fence) < 0 then -- another client holds the lock
        redis.call('PEXPIRE', fence, ARGV[4])
      end
    end
  end
  return answer
end

-- 2. the caller holds it already: the reply was lost, or the caller asks again
local last = holder and redis.call('HGET', fence, 'token')
if last then
  redis.call('PEXPIRE', lock, lease_ms)
  return 'acquired ' .. last .. ' 1'
end

-- 3. free
local noted = redis.pcall('HMGET', fence, 'token', 'line')
if noted.err then -- the key has another type
  redis.call('DEL', lock)
  return noted
end
local found, at_us = noted[1], now_us()
local free_in_ms = noted[2] and party ~= '' and left_to_first(noted[2], at_us)
if free_in_ms then
  redis.call('DEL', lock)
  if not waits then
    return string.format('held %.0f 0', free_in_ms)
  end
  local ahead = keep_place(at_us)
  -- should those ahead have died, each of them costs as long as the lock is left to it
  return string.format('held %.0f 0 %d', free_in_ms + math.max(0, ahead - 1) * tonumber(left_ms), ahead)
end
local token = string.format('%.0f', next_token(tonumber(found or '0'), at_us))
if delay_ms == '0' then
  redis.call('HSET', fence, 'token', token, 'kind', 'lock')
else
  redis.call('HSET', fence, 'token', token, 'kind', 'lock', 'delay', delay_ms .. ' ' .. holder_id)
end
-- it lives a day longer than the lease; an hour less is not worth a write
if not found or at_us - tonumber(found) > HOUR_US or tonumber(lease_ms) * 1000 > HOUR_US then
  redis.call('PEXPIRE', fence, ARGV[4])
end
return 'acquired ' .. token .. ' 0'
