#!lua flags=allow-oom
-- Extend a reentrant lock, only if this entry counts; never re-creates it, and never shortens the lease promised to
-- another entry of the same owner.
-- KEYS     1 lock (hash: owner -> count)   2 fence (hash)   3 freed (channel, unused)   4 entries (set of holder ids)
-- ARGV     1 owner   2 holder_id   3 ttl_ms   4 fence_ttl_ms
-- answers  {"renewed"}   {"lost"}
local lock, fence, entries, ttl_ms, fence_ttl_ms = KEYS[1], KEYS[2], KEYS[4], ARGV[3], ARGV[4]
local is_ours = redis.call('HEXISTS', lock, ARGV[1]) == 1
if redis.call('SISMEMBER', entries, ARGV[2]) == 0 or not is_ours then
  return { 'lost' }
end
if redis.call('SCARD', entries) == 1 or redis.call('PTTL', lock) < tonumber(ttl_ms) then
  redis.call('PEXPIRE', lock, ttl_ms)
  redis.call('PEXPIRE', entries, ttl_ms)
end
if redis.call('PTTL', fence) < tonumber(fence_ttl_ms) then
  redis.call('PEXPIRE', fence, fence_ttl_ms)
end
return { 'renewed' }
