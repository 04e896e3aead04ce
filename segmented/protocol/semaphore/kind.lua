-- Semaphores, for the operator's scripts.
-- KEYS  1 lock (zset: holder id -> end in ms)   2 fence (hash: token, kind, permits)
KINDS[#KINDS + 1] = {
  name = 'semaphore',
  type = 'zset',
  has_token = true,
  has_listeners = true,
  generation = false, -- each permit has a token of its own
  is_its_key = function()
    return true
  end,
  is_free = function()
    return redis.call('ZCOUNT', LOCK, AFTER_NOW, '+inf') == 0
  end,
  show = function(view)
    view.permits = redis.call('HGET', FENCE, 'permits') or ''
    add_all(view, LOCK, 'permit')
  end,
}
