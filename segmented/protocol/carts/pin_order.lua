#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 2
-- Keep a reservation until it is confirmed or cancelled: its hold no longer expires. Works when memory is full.
-- ARGV     1 order_id   2 pinned_until_ms (later than any hold)   3 home (of its cart, which has the decision)
-- answers  {"unknown"}   no such order
--          {"gated"}     the order database of this pool decides its orders, so no cart can
--          {"order", state}   "r": pinned; any other: it was decided before
local pool = read_pool()
local record = read_order(ARGV[1])
if not record then
  return { 'unknown' }
end
if record.state == 'r' and pool.is_gated then
  return { 'gated' }
end
if record.state == 'r' then
  record.home = ARGV[3]
  redis.call('HSET', ORDERS, ARGV[1], packed(record))
  redis.call('ZADD', HOLDS, ARGV[2], ARGV[1])
end
return { 'order', record.state }
