#!lua flags=allow-oom
-- uses shared/pool.lua
-- Make a reservation final; free its segment if its holder still has it. Needs no lease, and works when memory is full.
-- ARGV     1 order_id
-- answers  {"missing"}   {"unknown"}
--          {"settled", state, quantity, segment, fence, sequence, replay}   replay "1": it had happened before
if redis.call('HLEN', META) == 0 then
  return { 'missing' }
end
local record = read_order(ARGV[1])
if not record then
  return { 'unknown' }
end
if record.state ~= 'reserved' then
  return settled(record, '1')
end
settle(ARGV[1], record, 'confirmed')
return settled(record, '0')
