#!lua flags=allow-oom
-- uses shared/pool.lua
-- Make a reservation final. Needs no lease, and works when memory is full. The segment is freed if its holder still has
-- it; a holder that overslept its lease does not free its successor's.
-- ARGV     1 order_id   2 holder_id ("" frees whoever has the order)
-- answers  {"missing"}   {"unknown"}
--          {"settled", state, quantity, segment, fence, sequence, replay}   replay "1": it had happened before
if redis.call('HLEN', META) == 0 then
  return { 'missing' }
end
local record = read_order(ARGV[1])
if not record then
  return { 'unknown' }
end
local is_holders = ARGV[2] == '' or record.holder == ARGV[2]
if record.state ~= 'reserved' then
  if is_holders and has_lease(record) then
    free_segment(record)
  end
  return settled(record, '1')
end
settle(ARGV[1], record, 'confirmed', not is_holders)
return settled(record, '0')
