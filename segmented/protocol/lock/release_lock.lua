#!lua flags=allow-oom
-- Compare and delete, then wake one waiter per process, unless it is quiet. Safe to run twice: a repeat after a lost reply gets "released"
-- until another holder has released the lock.
-- KEYS     1 lock (string: holder id)   2 fence (hash: token, releaser, delay)   3 freed (channel)
-- ARGV     1 holder_id   2 delay_ms   3 is_quiet ("1")
-- answers  {"released"}   {"lost", "forgotten"} without a fence
--          {"lost", token of the last lease that was revoked; "" for none}
local lock, fence, holder_id, delay_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if redis.call('GET', lock) ~= holder_id then
  local noted = redis.call('HMGET', fence, 'releaser', 'token', 'revoked')
  if noted[1] == holder_id then
    return { 'released' }
  end
  return { 'lost', noted[2] and string.match(noted[3] or '', ' (%d*)$') or noted[2] and '' or 'forgotten' }
end
local has_fence = redis.call('HLEN', fence) > 0 -- fails for another type before the first write
-- the lease is over, and the name stays closed until its delay is over too
if delay_ms > 0 and redis.call('PTTL', lock) <= delay_ms then
  return { 'lost', '' }
end
redis.call('DEL', lock)
if has_fence then
  redis.call('HSET', fence, 'releaser', holder_id)
end
if ARGV[3] ~= '1' then
  redis.pcall('PUBLISH', KEYS[3], holder_id)
end
return { 'released' }
