#!lua flags=allow-oom
-- Push the end of a lease out, only if it is still the holder's; never re-creates it.
-- KEYS     1 lock   2 fence   3 freed (unused)
-- ARGV     1 holder_id   2 ttl_ms   3 fence_ttl_ms
-- answers  {"renewed"}   {"lost"}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return { 'lost' }
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return { 'renewed' }
