#!lua flags=allow-oom
-- Remove one entry from the owner's count; the last one frees the lock and wakes one waiter per process. The remaining
-- lease is unchanged. Safe to run twice: a missing entry removes nothing.
-- KEYS     1 lock (hash: owner -> count)   2 fence (unused)   3 freed (channel)   4 entries (set of holder ids)
-- ARGV     1 owner   2 holder_id
-- answers  {"released"}   {"lost"}
local lock, entries = KEYS[1], KEYS[4]
local is_ours = redis.call('HEXISTS', lock, ARGV[1]) == 1
if redis.call('SISMEMBER', entries, ARGV[2]) == 0 or not is_ours then
  return { 'lost' }
end
local left = redis.call('HINCRBY', lock, ARGV[1], -1) -- the first write: fails if the count is no number
redis.call('SREM', entries, ARGV[2])
if left <= 0 then
  redis.call('DEL', lock, entries)
  redis.pcall('PUBLISH', KEYS[3], 'freed')
end
return { 'released' }
