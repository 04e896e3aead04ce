#!lua flags=allow-oom
-- Give a lease to another holder id, with its token and its end. Safe to run twice: a repeat gets "renamed" again.
-- KEYS     1 lock   2 fence   3 freed (unused)
-- ARGV     1 holder_id   2 new_holder_id
-- answers  {"renamed"}   {"lost"} if neither holds it
local lock, fence, holder_id, new_holder_id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local holder = redis.call('GET', lock)
if holder == new_holder_id then
  return { 'renamed' }
elseif holder ~= holder_id then
  return { 'lost' }
end
-- the delay is noted with its holder, and the new holder has not released the lock yet
local delay_ms = string.match(redis.call('HGET', fence, 'delay') or '', '^(%d+) ')
redis.call('SET', lock, new_holder_id, 'KEEPTTL')
if delay_ms then
  redis.call('HSET', fence, 'delay', delay_ms .. ' ' .. new_holder_id)
end
redis.call('HDEL', fence, 'releaser')
return { 'renamed' }
