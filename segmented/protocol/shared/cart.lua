-- uses shared/clock.lua
-- uses shared/call.lua
-- uses shared/seen.lua
-- Shared by the scripts about carts: their records, and the answer that carries one.
-- KEYS  1 meta (hash: the pool's own)   2 carts (hash: cart id -> record)
--       3 unfinished (zset: cart id -> ms from which anybody may finish it)
-- A record is state, deadline in ms, refusal and the call that made the last change, separated by tabs, then a newline and
-- the content. The state is o(pen), r(eserved), c(onfirmed), x (cancelled), e(xpired) or f (refused). Refusal and content
-- are texts without newlines or tabs that no script parses.
local META, CARTS, UNFINISHED = KEYS[1], KEYS[2], KEYS[3]

-- Fails if the pool is not open or was archived, or the caller does not know its profile; while it is being archived only a
-- script that `is_reading` goes on.
local function check_pool(is_reading)
  local found = redis.call('HMGET', META, 'archive', 'epoch', 'profile', 'gated')
  if found[1] and not (is_reading and found[2]) then
    error({ err = 'ARCHIVED ' .. found[1] })
  end
  if redis.call('EXISTS', META) == 0 then
    error({ err = 'MISSING' })
  end
  check_profile(META, found[3], found[4] == '1')
end

local function packed(cart)
  return table.concat({ cart.state, digits(cart.deadline_ms), cart.refusal, this_call }, '\t') .. '\n' .. cart.content
end

local function parsed(raw)
  local state, deadline_ms, refusal, by, content = string.match(raw, '^(%l)\t(%d+)\t([^\t\n]*)\t?(%x*)\n(.*)$')
  return { state = state, deadline_ms = tonumber(deadline_ms), refusal = refusal, by = by, content = content }
end

-- The cart, or nil. It reads both keys, so that one of the wrong type fails before the first write.
local function read_cart(id)
  local is_unfinished = redis.call('ZSCORE', UNFINISHED, id)
  local raw = redis.call('HGET', CARTS, id)
  if not raw then
    return nil
  end
  local cart = parsed(raw)
  cart.is_finished = not is_unfinished
  return cart
end

-- The answer is no replay if an earlier attempt of this call, whose reply was lost, made the last change.
local function answer(cart, is_replay)
  is_replay = is_replay and not (is_further and cart.by == this_call)
  local left_ms = digits(math.max(0, cart.deadline_ms - now_ms))
  return { 'cart', cart.state, left_ms, cart.is_finished and '1' or '0', cart.refusal, cart.content,
    is_replay and '1' or '0' }
end
