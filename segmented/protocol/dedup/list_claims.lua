#!lua
-- uses shared/clock.lua
-- List held keys, the earliest end first.
-- KEYS     1 claims (zset: key, or "key message" -> server ms at which its claim expires; +inf: unknown, or will be)
-- ARGV     1 limit
-- answers  {now_ms, member, score, member, score, ...}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
table.insert(found, 1, digits(now_ms))
return found
