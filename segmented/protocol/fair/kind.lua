-- Fair locks, for the operator's scripts. The fence says that a string is one.
-- KEYS  1 lock (string: holder id)   8 queue (zset: holder id -> arrival number)
--       9 waiters (hash: holder id -> its place)   10 present (zset: holder id -> server ms)
--       11 turn (prefix: <turn>:<holder id> is the channel of a waiter)
local QUEUE, WAITERS, PRESENT, TURN = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local LOOKED_AT_MAX = 1000

KINDS[#KINDS + 1] = {
  name = 'fair',
  type = 'string',
  has_token = true,
  has_listeners = false, -- waiters have channels of their own
  show = function(view)
    local holder = redis.call('GET', LOCK)
    -- a process that was handed the lock and has not claimed it yet is a waiter, too
    local present = redis.call('ZCOUNT', PRESENT, AFTER_NOW, '+inf')
    view.waiters = digits(math.max(0, present - redis.call('HEXISTS', WAITERS, holder)))
    add(view, holder, 'exclusive', view.free_in_ms)
  end,
  turns = function()
    local channels = {}
    for index, waiter in ipairs(redis.call('ZRANGE', QUEUE, 0, LOOKED_AT_MAX - 1)) do
      channels[index] = TURN .. ':' .. waiter
    end
    return channels
  end,
}
