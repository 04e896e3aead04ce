#!lua
-- uses shared/fair.lua
-- Take a fair lock, or a place in its queue. Safe to run twice: a repeat by the holder renews its lease and keeps its
-- token, a repeat by a waiter keeps its place and proves that it is alive.
-- ARGV     1 holder_id   2 process   3 ttl_ms   4 waits: "1", or "0" for a caller that leaves no trace   5 presence_ms
--          6 look_ms   7 claim_ms   8 fence_ttl_ms
-- answers  {"wrong_kind"} if another kind of lock has the name
--          {"acquired", token, "1" for a replay, else "0"}
--          {"held", ms until the next check}
local process, ttl_ms, waits = ARGV[2], ARGV[3], ARGV[4] == '1'
local presence_ms, look_ms, claim_ms, fence_ttl_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

-- 1. another kind of lock. A string that none of our locks has noted belongs to another client: wait for it
if holder and holder ~= me and (kind or last_token > 0) and kind ~= 'fair' then
  return { 'wrong_kind' }
end
forget_the_absent()

-- 2. the caller's: handed over since its last request, or taken before with a lost reply. The process that handed it over
--    need not have seen every token that the caller's has.
if holder == me then
  local is_new = entry and true
  forget_me()
  if last_token == 0 or last_token < tonumber(seen_token) + (is_new and 1 or 0) then
    give_to(me, process, ttl_ms)
  end
  redis.call('PEXPIRE', LOCK, ttl_ms)
  keep_fence(fence_ttl_ms)
  return { 'acquired', digits(last_token), is_new and '0' or '1' }
end

-- 3. the lock handed over was not claimed: the whole process is passed over until one of its waiters asks again
if not holder and handed then
  local _, silent = waiter(handed)
  if silent and silent ~= process and not redis.call('ZSCORE', QUEUE, handed) then
    for _, id in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
      local _, own = waiter(id)
      if own == silent then
        redis.call('ZREM', QUEUE, id)
      end
    end
  end
end

-- 4. a place in the queue, behind all earlier waiters; a waiter keeps its place, and so do others of its process
if waits and (holder or entry or redis.call('ZCARD', QUEUE) > 0) then
  local arrival, _, is_heard = parts_of(entry)
  if not entry then
    local newest = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
    arrival = digits(math.max(arrivals, tonumber(newest or '0')) + 1)
    redis.call('HSET', FENCE, 'arrivals', arrival)
    redis.call('ZADD', QUEUE, arrival, me)
  elseif not is_in_line then
    for _, id in ipairs(redis.call('HKEYS', WAITERS)) do
      local number, own = waiter(id)
      if own == process and id ~= holder then
        redis.call('ZADD', QUEUE, number, id)
      end
    end
  end
  if not is_heard then
    local listeners = redis.pcall('PUBSUB', 'NUMSUB', TURN .. ':' .. me)
    is_heard = type(listeners[2]) == 'number' and listeners[2] > 0
    entry = arrival .. ' ' .. process .. ' ' .. (is_heard and '+' or '-')
    redis.call('HSET', WAITERS, me, entry)
  end
  redis.call('ZADD', PRESENT, digits(now_ms + presence_ms), me)
  local longest_ms = redis.call('PTTL', PRESENT)
  if longest_ms < presence_ms or not is_in_line then -- twice as long as needed, so that not every check writes
    longest_ms = digits(math.max(longest_ms, 2 * presence_ms))
    for _, key in ipairs({ PRESENT, WAITERS, QUEUE }) do
      redis.call('PEXPIRE', key, longest_ms)
    end
  end
end

-- 5. free: the caller's if no live waiter came before, otherwise handed to that waiter
local is_handed_now = false
if not holder then
  local first = first_living()
  if first == me or not first then
    forget_me()
    give_to(me, process, ttl_ms)
    notify_minder(true)
    keep_fence(fence_ttl_ms)
    return { 'acquired', digits(last_token), '0' }
  end
  hand_to(first, claim_ms)
  holder, is_handed_now = first, true
end

-- 6. wait until the lease ends, as the minder or while a handed-over lock is unclaimed; otherwise until the next check
local remaining_ms = redis.call('PTTL', LOCK)
local minds = notify_minder(is_handed_now) == me or redis.call('HEXISTS', WAITERS, holder) == 1
keep_fence(fence_ttl_ms)
return { 'held', digits((minds and remaining_ms >= 0) and math.max(1, math.min(remaining_ms, look_ms)) or look_ms) }
