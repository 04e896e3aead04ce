#!lua
-- List held keys, the earliest end first.
-- KEYS     1 claims (zset: key, or "key message" -> server ms at which its claim expires; +inf: unknown, or will be)
-- ARGV     1 limit
-- answers  {now_ms, member, score, member, score, ...}
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
table.insert(found, 1, now)
return found
