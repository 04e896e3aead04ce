#!lua flags=no-writes
-- uses shared/cart.lua
-- Read a cart.
-- ARGV     1 cart_id
-- answers  {"missing"}   the pool is not open
--          {"unknown"}   it has no such cart
--          {"cart", state, left_ms, finished ("1"), refusal, content, "1"}
if is_pool_missing(true) then
  return { 'missing' }
end
local cart = read_cart(ARGV[1])
if not cart then
  return { 'unknown' }
end
return answer(cart, true)
