#!lua flags=allow-oom
-- Compare and delete, then wake one waiter a process. Safe to run twice: a repeat after a lost reply is told "released"
-- until somebody else has released the lock.
-- KEYS     1 lock (string: holder id)   2 fence (string: last token, last releaser)   3 freed (channel)
-- ARGV     1 holder_id
-- answers  {"released"}   {"lost"}
local holder_id = ARGV[1]
local token, releaser = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) ?(.*)$')
if redis.call('GET', KEYS[1]) ~= holder_id then
  return { releaser == holder_id and 'released' or 'lost' }
end
redis.call('DEL', KEYS[1])
if token then
  redis.call('SET', KEYS[2], token .. ' ' .. holder_id, 'KEEPTTL')
end
redis.call('PUBLISH', KEYS[3], 'freed')
return { 'released' }
