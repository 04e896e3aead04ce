#!lua flags=allow-oom
-- Compare and delete a vote, unless it is of a later round than the released one; then wake one waiter per process. Safe
-- to run twice: a repeat after a lost reply gets "released" until another holder has released the lock. A withdrawn
-- attempt leaves no such record.
-- KEYS     1 lock (string: holder id)   2 fence (hash: kind, round, releaser)   3 freed (channel)
-- ARGV     1 holder_id   2 round   3 quiet: "1" to wake no waiter, else "0"   4 ends: "1" from a holder that ends its
--          lease, else "0"
-- answers  {"released"}   {"lost"} also when the vote is of a later round
local lock, fence, holder_id = KEYS[1], KEYS[2], ARGV[1]
if redis.call('GET', lock) ~= holder_id then
  return { redis.call('HGET', fence, 'releaser') == holder_id and 'released' or 'lost' }
end
if tonumber(redis.call('HGET', fence, 'round') or '0') > tonumber(ARGV[2]) then
  return { 'lost' }
end
redis.call('DEL', lock)
if ARGV[4] == '1' and redis.call('EXISTS', fence) == 1 then
  redis.call('HSET', fence, 'releaser', holder_id)
end
if ARGV[3] ~= '1' then
  redis.pcall('PUBLISH', KEYS[3], 'freed')
end
return { 'released' }
