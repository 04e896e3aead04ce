-- The historical lock, for the operator's scripts.
-- KEYS  1 lock (string: seconds with six decimals, at which it ends)
KINDS[#KINDS + 1] = {
  name = 'get_set',
  type = 'string',
  has_token = false,
  has_listeners = false, -- waiters poll
  is_its_key = function()
    return string.match(redis.call('GET', LOCK), '^%d+%.%d%d%d%d%d%d$')
  end,
}
