#!lua
-- uses shared/fair.lua
-- Take a fair lock, or a place in its queue. Safe to run twice: a repeat by the holder renews its lease and keeps its
-- token, a repeat by a waiter keeps its place and proves that it is alive.
-- ARGV     1 holder_id   2 process   3 ttl_ms   4 waits: "1", or "0" for one that leaves no trace   5 presence_ms
--          6 look_ms   7 claim_ms   8 fence_ttl_ms
-- answers  {"wrong_kind"} when another kind of lock has the name
--          {"acquired", token, "1" when a replay else "0"}
--          {"held", ms until it is worth looking again}
local me, process, ttl_ms, waits = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local presence_ms, look_ms, claim_ms, fence_ttl_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

-- 1. another kind of lock; a string that no lock of ours has noted is some other client's, and waited for
if holder and holder ~= me then
  local noted = redis.call('HMGET', FENCE, 'token', 'kind')
  if (noted[1] or noted[2]) and noted[2] ~= 'fair' then
    return { 'wrong_kind' }
  end
end

forget_the_absent()

-- 2. ours: handed to us since we last asked, or taken before, and the reply was lost
if holder == me then
  local token = redis.call('HGET', FENCE, 'token')
  local is_new = redis.call('HEXISTS', WAITERS, me) == 1
  forget(me)
  token = token or give_to(me, process, ttl_ms)
  redis.call('PEXPIRE', LOCK, ttl_ms)
  lengthen(FENCE, fence_ttl_ms)
  return { 'acquired', token, is_new and '0' or '1' }
end

-- 3. nobody came for what was handed over: the whole process is passed over until one of it asks again
local handed = not holder and redis.call('HGET', FENCE, 'handed')
local _, silent = waiter(handed or '')
if silent and silent ~= process and not redis.call('ZSCORE', QUEUE, handed) then
  for _, id in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
    local _, own = waiter(id)
    if own == silent then
      redis.call('ZREM', QUEUE, id)
    end
  end
end

-- 4. a place in the queue, behind all who came before; whoever had one has it still, and so have others of its process
local arrival = waiter(me)
if waits and (holder or arrival or redis.call('ZCARD', QUEUE) > 0) then
  if arrival and not redis.call('ZSCORE', QUEUE, me) then
    for _, id in ipairs(redis.call('HKEYS', WAITERS)) do
      local number, own = waiter(id)
      if own == process and id ~= holder then
        redis.call('ZADD', QUEUE, number, id)
      end
    end
  elseif not arrival then
    local newest = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
    local last = math.max(tonumber(redis.call('HGET', FENCE, 'arrivals') or '0'), tonumber(newest or '0'))
    arrival = digits(last + 1)
    redis.call('HSET', FENCE, 'arrivals', arrival)
    redis.call('ZADD', QUEUE, arrival, me)
  end
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', TURN .. ':' .. me)
  local is_heard = type(listeners[2]) == 'number' and listeners[2] > 0
  redis.call('HSET', WAITERS, me, arrival .. ' ' .. process .. ' ' .. (is_heard and '+' or '-'))
  redis.call('ZADD', PRESENT, digits(now_ms + presence_ms), me)
  lengthen(PRESENT, digits(presence_ms))
  local longest_ms = digits(redis.call('PTTL', PRESENT))
  lengthen(WAITERS, longest_ms)
  lengthen(QUEUE, longest_ms)
end

-- 5. free: ours if nobody alive came before, else handed to who did
local is_handed_now = false
if not holder then
  local first = first_living(me)
  if first == me or not first then
    forget(me)
    local token = give_to(me, process, ttl_ms)
    tell_minder(nil, true)
    lengthen(FENCE, fence_ttl_ms)
    return { 'acquired', token, '0' }
  end
  hand_to(first, claim_ms)
  holder, is_handed_now = first, true
end

-- 6. wait: until the holder's end for who minds it, or who sees a lock that nobody has come for yet
local remaining_ms = redis.call('PTTL', LOCK)
local minds = tell_minder(me, is_handed_now) == me or redis.call('HEXISTS', WAITERS, holder) == 1
lengthen(FENCE, fence_ttl_ms)
return { 'held', digits((minds and remaining_ms >= 0) and math.max(1, math.min(remaining_ms, look_ms)) or look_ms) }
