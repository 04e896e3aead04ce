#!lua flags=allow-oom
-- uses shared/fair.lua
-- End a fair lock's lease and hand the lock to the head of its queue, or give up a place in the queue. Safe to run
-- twice: a repeat changes nothing.
-- ARGV     1 holder_id   2 claim_ms   3 fence_ttl_ms
-- answers  {"released"}   {"lost"}
local claim_ms, fence_ttl_ms = ARGV[2], ARGV[3]
local is_holder = holder == me
forget_the_absent()

-- 1. the caller neither holds nor waits
if not is_holder and not entry then
  return { 'lost' }
end

-- 2. out of the queue; of a holder, only if it was handed the lock and has not come for it
forget_me()

-- 3. the lock is free now, or since its holder's lease expired: hand it to the first live waiter
local first = (is_holder or not holder) and first_living()
if first then
  hand_to(first, claim_ms)
elseif is_holder then
  redis.call('DEL', LOCK)
  redis.pcall('PUBLISH', FREED, 'freed')
end
notify_minder(first and true)
if redis.call('EXISTS', FENCE) == 1 then
  keep_fence(fence_ttl_ms)
end
return { 'released' }
