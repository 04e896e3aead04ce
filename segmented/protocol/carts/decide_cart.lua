#!lua flags=allow-oom
-- uses shared/cart.lua
-- Change a cart's state, if the change is still allowed; the first caller wins. Works when memory is full.
-- ARGV     1 cart_id   2 state: r(eserved), f (refused), x (cancelled), e(xpired) or c(onfirmed)
--          3 refusal ("" for none)   4 stored ("1": the order database of a gated home has stored, or voided, the lines)
-- answers  {"unknown"}   it has no such cart
--          {"gated"}     its order database must decide first
--          {"cart", state, left_ms, finished ("1"), refusal, content, replay ("1": unchanged)}
--            An open cart whose hold has ended becomes expired instead of reserved.
--            An open cart becomes confirmed only if it is stored: its pool lost the change to reserved.
local id, state, is_stored = ARGV[1], ARGV[2], ARGV[4] == '1'
local MAY_BECOME = { o = is_stored and 'rfxec' or 'rfxe', r = 'cxe' }
check_pool()
local cart = read_cart(id)
if not cart then
  return { 'unknown' }
end
if not string.find(MAY_BECOME[cart.state] or '', state, 1, true) then
  return answer(cart, true)
end
if not is_stored and redis.call('HGET', META, 'gated') == '1' then
  return { 'gated' }
end
if state == 'r' and cart.deadline_ms <= now_ms then
  state = 'e'
end
cart.state, cart.refusal = state, ARGV[3]
redis.call('HSET', CARTS, id, packed(cart))
if state ~= 'r' then
  redis.call('ZADD', UNFINISHED, 'LT', digits(now_ms), id) -- any process may carry it out if the decider dies
  cart.is_finished = false
end
return answer(cart, false)
