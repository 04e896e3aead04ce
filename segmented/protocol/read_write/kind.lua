-- Locks of readers and writers, for the operator's scripts.
-- KEYS  1 lock (hash: mode, token, holder)   4 readers (zset: holder id -> end in ms)
--       5 writers (zset: waiting holder id -> end in ms)   6 opened (channel of readers)
local READERS, WRITERS, OPENED = KEYS[4], KEYS[5], KEYS[6]

KINDS[#KINDS + 1] = {
  name = 'read_write',
  type = 'hash',
  has_token = true,
  has_listeners = true,
  opened = OPENED,
  companions = { READERS },
  is_its_key = function()
    return redis.call('HEXISTS', LOCK, 'mode') == 1
  end,
  show = function(view)
    view.waiters = digits(redis.call('ZCOUNT', WRITERS, AFTER_NOW, '+inf'))
    if redis.call('HGET', LOCK, 'mode') == 'write' then
      add(view, redis.call('HGET', LOCK, 'holder') or '', 'write', view.free_in_ms)
    else
      add_all(view, READERS, 'read')
    end
  end,
  generation = function()
    local found = redis.call('HMGET', LOCK, 'token', 'mode')
    return found[1] or '', found[2] == 'read' and 'shared' or 'exclusive'
  end,
}
