#!lua flags=no-writes
-- uses shared/pool.lua
-- Totals, sequence number and units a segment, in one step.
-- ARGV     none
-- answers  {"missing"}
--          {"pool", epoch, segment_count, gated, sequence, opened, available, reserved, confirmed, order_count,
--           {segment, units, ...}}
if redis.call('HLEN', META) == 0 then
  return { 'missing' }
end
return pool_state()
