-- Plain locks, for the operator's scripts.
-- KEYS  1 lock (string: holder id)   2 fence (hash: token, delay)

-- Return the milliseconds of the holder's lock-delay, nil for none.
local function delay_of(holder)
  local delay_ms, whose = string.match(redis.call('HGET', FENCE, 'delay') or '', '^(%d+) (.*)$')
  return whose == holder and tonumber(delay_ms) or nil
end

PLAIN = {
  name = 'lock',
  type = 'string',
  has_token = true,
  has_listeners = true,
  show = function(view)
    local holder = redis.call('GET', LOCK)
    local delay_ms, remaining_ms = delay_of(holder), view.free_in_ms
    if delay_ms and view.free_in_ms >= 0 then
      remaining_ms = view.free_in_ms - delay_ms
      view.is_delayed = remaining_ms <= 0
    end
    if view.is_delayed then
      view.holder_count = 0
    else
      add(view, holder, 'exclusive', remaining_ms)
    end
  end,
  generation = function()
    local delay_ms = delay_of(redis.call('GET', LOCK))
    if delay_ms and redis.call('PTTL', LOCK) <= delay_ms then
      return '', 'exclusive' -- only the delay of a lost lease runs: nobody holds it
    end
    return last_token(PLAIN), 'exclusive'
  end,
}
KINDS[#KINDS + 1] = PLAIN
