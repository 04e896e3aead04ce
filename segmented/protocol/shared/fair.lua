-- uses shared/clock.lua
-- uses shared/seen.lua
-- Shared by the scripts that move the queue of a fair lock: who is alive, who minds the holder's end, handing over.
-- KEYS  1 lock (string with PX: holder id)
--       2 fence (hash with PX: token, kind, arrivals, process of the holder; handed: the last holder id that the lock
--         was handed to; minder: the waiter notified last to watch the holder's end)   3 freed (channel)
--       4 queue (zset with PX: holder id -> arrival number)
--       5 waiters (hash with PX: holder id -> "arrival process +"; "-" until the server has seen its subscription)
--       6 present (zset with PX: holder id -> server ms until which it counts as alive)
--       7 turn (prefix: <turn>:<holder id> is the channel of that waiter)
-- ARGV  1 holder_id
-- `waiters` and `present` name every waiter, and the one that was handed the lock and has not claimed it yet. `queue`
-- names those that may be handed the lock now. A waiter removed from `queue` alone keeps its number and returns to its
-- place with its next attempt.
local LOCK, FENCE, FREED, QUEUE, WAITERS, PRESENT, TURN =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local MANY = 1000
local PASSED_MAX = 1000

-- A script does not roll back: a key of the wrong type must fail here.
local me = ARGV[1]
local holder = redis.call('GET', LOCK)
local noted = redis.call('HMGET', FENCE, 'token', 'kind', 'arrivals', 'process', 'handed', 'minder')
local last_token, kind, arrivals = token_in(noted[1], FENCE), noted[2], token_in(noted[3], FENCE)
local holders_process, handed, minder = noted[4], noted[5], noted[6]
local is_in_line = redis.call('ZSCORE', QUEUE, me) and true
local entry = redis.call('HGET', WAITERS, me)
redis.call('ZCARD', PRESENT)

-- Keep the fence for about `ms` from now; an hour less is not worth a write.
local function keep_fence(ms)
  if redis.call('PTTL', FENCE) < tonumber(ms) - 3600000 then
    redis.call('PEXPIRE', FENCE, ms)
  end
end

-- Return a waiter's number, its process, and whether its subscription was seen; nothing for an unknown waiter.
local function parts_of(text)
  local arrival, process, heard = string.match(text or '', '^(%d+) (.*) (.)$')
  return arrival, process, heard == '+'
end

local function waiter(id)
  return parts_of(redis.call('HGET', WAITERS, id))
end

local function forget_me()
  if entry then
    redis.call('ZREM', QUEUE, me)
    redis.call('HDEL', WAITERS, me)
    redis.call('ZREM', PRESENT, me)
  end
end

-- Drop all waiters whose presence has expired.
local function forget_the_absent()
  repeat
    local absent = redis.call('ZRANGE', PRESENT, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, MANY)
    if #absent > 0 then
      redis.call('ZREM', QUEUE, unpack(absent))
      redis.call('HDEL', WAITERS, unpack(absent))
      redis.call('ZREM', PRESENT, unpack(absent))
      is_in_line = redis.call('ZSCORE', QUEUE, me) and true
      entry = redis.call('HGET', WAITERS, me)
    end
  until #absent < MANY
end

-- PUBLISH counts the receivers on its own server only: with a single server, these are all.
local is_alone = nil
local function counts_are_whole()
  if is_alone == nil then
    local info = redis.pcall('INFO', 'cluster')
    is_alone = type(info) == 'string' and string.find(info, 'cluster_enabled:0', 1, true) ~= nil
  end
  return is_alone
end

-- Wake a waiter; false if the server had seen its subscription and it is gone now. A refused PUBLISH counts nobody.
local passed = 0
local function reaches(id)
  local heard_by = redis.pcall('PUBLISH', TURN .. ':' .. id, 'turn')
  if type(heard_by) ~= 'number' or heard_by > 0 or passed >= PASSED_MAX then
    return true
  end
  local _, _, is_heard = waiter(id)
  return not (is_heard and counts_are_whole())
end

local function pass_over(id)
  redis.call('ZREM', QUEUE, id)
  passed = passed + 1
end

-- Return the first live waiter in the queue. The caller counts as alive; the check wakes any other one.
local function first_living()
  while true do
    local id = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not id or id == me or reaches(id) then
      return id
    end
    pass_over(id)
  end
end

-- Set a new holder for `ms`, with a token greater than the last one.
local function give_to(id, process, ms)
  last_token = next_token(last_token, now_us)
  holders_process = process
  redis.call('SET', LOCK, id, 'PX', ms)
  redis.call('HSET', FENCE, 'token', digits(last_token), 'kind', 'fair', 'process', process,
    'holder', id)
end

-- Hand the free lock to a waiter for as long as a claim may take.
local function hand_to(id, claim_ms)
  local _, process = waiter(id)
  give_to(id, process or '', claim_ms)
  redis.call('HSET', FENCE, 'handed', id)
  redis.call('ZREM', QUEUE, id)
end

-- The waiter that watches the holder's end: among the first hundred, the first from a process other than the holder's,
-- because a process that dies takes its waiters with it; otherwise the first of all.
local function pick_minder()
  local first = redis.call('ZRANGE', QUEUE, 0, 99)
  local entries = #first > 0 and redis.call('HMGET', WAITERS, unpack(first)) or {}
  for index, text in ipairs(entries) do
    local _, own = parts_of(text)
    if own ~= holders_process then
      return first[index]
    end
  end
  return first[1]
end

-- Notify the minder if it differs from the one notified last, or if `always`; the caller learns it from its answer.
local function notify_minder(always)
  while true do
    local id = pick_minder()
    if not id or (id == minder and not always) then
      return id
    end
    if id == me or reaches(id) then
      redis.call('HSET', FENCE, 'minder', id)
      return id
    end
    pass_over(id)
  end
end
