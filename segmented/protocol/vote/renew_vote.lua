#!lua flags=allow-oom
-- Extend a vote, only if it is still the holder's. A free vote is taken again on request; the answer says so, because it
-- does not prove that the lease was never interrupted. Then all votes of the lease get the same round, by which others
-- see that one attempt has them all.
-- KEYS     1 lock (string with PX: holder id)   2 fence (hash with PX: kind, round, releaser)   3 freed (channel, unused)
-- ARGV     1 holder_id   2 ttl_ms   3 the round of a lease whose votes are taken again; "0" to take none   4 fence_ttl_ms
-- answers  {"renewed"}   {"reestablished"}   {"lost"}
local lock, fence, holder_id, ttl_ms, round = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', lock)
if holder and holder ~= holder_id or not holder and round == '0' then
  return { 'lost' }
end
if round ~= '0' then
  local done = redis.pcall('HSET', fence, 'kind', 'quorum', 'round', round)
  if type(done) == 'table' then -- the key holds something else
    return done
  end
  redis.call('PEXPIRE', fence, ARGV[4])
end
redis.call('SET', lock, holder_id, 'PX', ttl_ms)
return { holder and 'renewed' or 'reestablished' }
