#!lua flags=allow-oom
-- uses shared/clock.lua
-- Extend a reader's or the writer's lease, only if it is still theirs; never re-creates it.
-- KEYS     1 lock (hash: mode, token, holder)   2 fence (unused)   3 readers (sorted set: holder id -> end in ms)
--          4 writers (unused)   5 freed (unused)   6 opened (unused)
-- ARGV     1 holder_id   2 ttl_ms
-- answers  {"renewed"}   {"lost"}
local lock, readers, holder_id, ttl_ms = KEYS[1], KEYS[3], ARGV[1], tonumber(ARGV[2])

local found = redis.call('HMGET', lock, 'mode', 'holder')
if found[1] == 'write' and found[2] == holder_id then
  redis.call('PEXPIRE', lock, ARGV[2])
  return { 'renewed' }
end

local own_end = found[1] == 'read' and tonumber(redis.call('ZSCORE', readers, holder_id) or '0') or 0
if own_end <= now_ms then
  return { 'lost' }
end
redis.call('ZADD', readers, digits(now_ms + ttl_ms), holder_id)
local latest = tonumber(redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2])
latest = digits(math.min(latest, 9007199254740991)) -- another program may have written infinity
redis.call('PEXPIREAT', lock, latest)
redis.call('PEXPIREAT', readers, latest)
return { 'renewed' }
