#!lua flags=allow-oom
-- Extend a fair lock's lease, only if it is still the holder's; never re-creates it.
-- KEYS     1 lock (string: holder id)   2 fence (hash)   (3 to 7, unused, as in shared/fair.lua)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms
-- answers  {"renewed"}   {"lost"}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return { 'lost' }
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return { 'renewed' }
