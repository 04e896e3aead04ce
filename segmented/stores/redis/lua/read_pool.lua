#!lua flags=no-writes
-- uses shared/pool.lua
-- Totals, sequence number and units a segment, in one step.
-- ARGV     none
-- answers  {"missing"}
--          {"pool", epoch, segment_count, gated, sequence, opened, available, reserved, confirmed, restocked,
--           withdrawn, customer_limit, closed, order_count, {segment, units, ...}}
if not read_pool() then
  return { 'missing' }
end
return pool_state()
