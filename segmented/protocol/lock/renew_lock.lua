#!lua flags=allow-oom
-- Extend a lease, only if it is still the holder's; never re-creates it. The fence outlives the lease by a day from the
-- acquire; if it expires under a lease renewed for longer, the next token is the server's clock.
-- KEYS     1 lock   2 fence (unused)   3 freed (unused)
-- ARGV     1 holder_id   2 ttl_ms   3 delay_ms
-- answers  {"renewed"}   {"lost"}
local lock, delay_ms = KEYS[1], tonumber(ARGV[3])
if redis.call('GET', lock) ~= ARGV[1] then
  return { 'lost' }
end
-- the lease is over, and only its delay runs
if delay_ms > 0 and redis.call('PTTL', lock) <= delay_ms then
  return { 'lost' }
end
redis.call('PEXPIRE', lock, string.format('%.0f', tonumber(ARGV[2]) + delay_ms))
return { 'renewed' }
