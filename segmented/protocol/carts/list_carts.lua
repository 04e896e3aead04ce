#!lua flags=no-writes
-- uses shared/cart.lua
-- Read unfinished carts, due or not, longest due first, and their count, in one step.
-- ARGV     1 limit, at most 1,000
-- answers  {"unfinished", count, due (how many of them may be finished now),
--            {cart_id, due_in_ms (negative: overdue), {"cart", state, left_ms, "0", refusal, content, "1"}}, ...}
check_pool(true)
local answers = {
  'unfinished',
  digits(redis.call('ZCARD', UNFINISHED)),
  digits(redis.call('ZCOUNT', UNFINISHED, '-inf', digits(now_ms))),
}
local found = redis.call('ZRANGE', UNFINISHED, '0', digits(tonumber(ARGV[1]) - 1), 'WITHSCORES')
for place = 1, #found, 2 do
  local id, due_ms = found[place], tonumber(found[place + 1])
  local cart = read_cart(id)
  if cart and cart.state then -- skip what another program wrote: an audit reports it
    answers[#answers + 1] = { id, digits(due_ms - now_ms), answer(cart, true) }
  end
end
return answers
