#!lua
-- uses shared/cart.lua
-- numbers 2
-- Open a cart that expires hold_ms from now, or read a known one.
-- ARGV     1 cart_id   2 hold_ms   3 content (what must be the same when the id comes again)
-- answers  {"mismatch", content}   the id exists with this other content
--          {"cart", state, left_ms, finished ("1"), refusal, content, replay ("1": nothing changed)}
local id, content = ARGV[1], ARGV[3]
check_pool()
local cart = read_cart(id)
if cart and cart.content ~= content then
  return { 'mismatch', cart.content }
end
if cart then
  return answer(cart, true)
end
cart = { state = 'o', deadline_ms = now_ms + tonumber(ARGV[2]), refusal = '', content = content }
redis.call('HSET', CARTS, id, packed(cart))
redis.call('ZADD', UNFINISHED, digits(cart.deadline_ms), id)
return answer(cart, false)
