#!lua
-- uses shared/pool.lua
-- Open a pool once. A pool whose keys vanished in part is not reopened: its remains would be sold again.
-- ARGV     1 stock   2 segment_count   3 gated ("1" or "0")   4 epoch
-- answers  {"already_open", state}   {"opened", state}   state as read_pool answers it
--          {"remains"}   some keys exist but not meta
local stock, segment_count = tonumber(ARGV[1]), tonumber(ARGV[2])

if redis.call('EXISTS', META) == 1 then
  return { 'already_open', pool_state() }
end
if redis.call('EXISTS', STOCK, FREE, ORDERS, HOLDS, LEDGER) > 0 then
  return { 'remains' }
end

local base, extra = math.floor(stock / segment_count), stock % segment_count
redis.call('HSET', META, 'epoch', ARGV[4], 'segment_count', ARGV[2], 'gated', ARGV[3], 'sequence', '0', 'fence', '0',
  'opened', ARGV[1], 'available', ARGV[1], 'reserved', '0', 'confirmed', '0')
for first = 0, segment_count - 1, MANY do
  local units, free = {}, {}
  for segment = first, math.min(first + MANY, segment_count) - 1 do
    units[#units + 1] = digits(segment)
    units[#units + 1] = digits(base + (segment < extra and 1 or 0))
    free[#free + 1] = '0'
    free[#free + 1] = digits(segment)
  end
  redis.call('HSET', STOCK, unpack(units))
  redis.call('ZADD', FREE, unpack(free))
end
append('opened', '', { quantity = stock })
return { 'opened', pool_state() }
