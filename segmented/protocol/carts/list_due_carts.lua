#!lua flags=no-writes
-- uses shared/cart.lua
-- Read carts that have expired, or are decided but not finished, oldest first. Entries that another program wrote, such as
-- an id without a record or an unreadable record, are skipped, up to 10,000 of them: an audit reports them.
-- ARGV     1 limit, at most 1,000   2 skip (how many of the first ones to leave out)
-- answers  {"due", {cart_id, {"cart", state, left_ms, "0", refusal, content, "1"}}, ...}
local PAGE, PAGES_MAX = 1000, 10
check_pool(true)
local limit, skip, answers = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
for page = 0, PAGES_MAX - 1 do
  local due = redis.call('ZRANGE', UNFINISHED, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', page * PAGE, PAGE)
  local raws = #due > 0 and redis.call('HMGET', CARTS, unpack(due)) or {}
  for index, id in ipairs(due) do
    local cart = raws[index] and parsed(raws[index])
    if cart and cart.state then
      if skip > 0 then
        skip = skip - 1
      elseif #answers < limit then
        answers[#answers + 1] = { id, answer(cart, true) }
      end
    end
  end
  if #due < PAGE or #answers >= limit then
    break
  end
end
table.insert(answers, 1, 'due')
return answers
