-- Reentrant locks, for the operator's scripts.
-- KEYS  1 lock (hash: `owner:` and the owner -> how often it has entered)   7 entries (set: holder ids)
local ENTRIES = KEYS[7]

KINDS[#KINDS + 1] = {
  name = 'reentrant',
  type = 'hash',
  has_token = true,
  has_listeners = true,
  companions = { ENTRIES },
  is_its_key = function()
    return string.match(redis.call('HKEYS', LOCK)[1], '^owner:')
  end,
  show = function(view)
    local found = redis.call('HGETALL', LOCK)
    add(view, '', 'exclusive', view.free_in_ms, string.gsub(found[1], '^owner:', ''), found[2])
  end,
}
