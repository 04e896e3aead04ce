#!lua flags=no-writes
-- uses shared/cart.lua
-- Read a cart.
-- ARGV     1 cart_id
-- answers  {"unknown"}   it has no such cart
--          {"cart", state, left_ms, finished ("1"), refusal, content, "1"}
check_pool(true)
local cart = read_cart(ARGV[1])
if not cart then
  return { 'unknown' }
end
return answer(cart, true)
