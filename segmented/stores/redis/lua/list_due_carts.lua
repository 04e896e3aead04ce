#!lua flags=no-writes
-- uses shared/cart.lua
-- Read carts that have lapsed, or are decided but not finished, longest ago first.
-- ARGV     1 limit, at most 1,000   2 skip (how many of the first ones to leave out)
-- answers  {"missing"}   the pool is not open
--          {"due", {cart_id, {"cart", state, left_ms, "0", refusal, content, "1"}}, ...}
if is_pool_missing() then
  return { 'missing' }
end
local answers = { 'due' }
local due = redis.call('ZRANGE', UNFINISHED, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', ARGV[2], ARGV[1])
for _, id in ipairs(due) do
  local cart = read_cart(id)
  if cart then
    answers[#answers + 1] = { id, answer(cart, true) }
  end
end
return answers
