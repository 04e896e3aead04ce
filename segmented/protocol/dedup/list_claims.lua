#!lua
-- List held keys, the earliest end first.
-- KEYS     1 claims (zset: key, or "key message" -> server ms at which its claim expires; +inf: unknown)
-- ARGV     1 limit   2 only_lapsed ("1")
-- answers  {now_ms, member, score, member, score, ...}
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local last = ARGV[2] == '1' and now or '+inf'
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
table.insert(found, 1, now)
return found
