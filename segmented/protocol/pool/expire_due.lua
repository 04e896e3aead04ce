#!lua flags=allow-oom
-- uses shared/pool.lua
-- Expire due holds, longest ago first, a bounded number in one step. A hold with a live lease is left alone.
-- ARGV     1 limit, at most 1,000; of orders with many parts it expires fewer
-- answers  {"missing"}   {"gated"}   the order database of this pool must decide first
--          {"expired", sequence, more ("1": more are due), lines, epoch}   one line per order: order_id, quantity, segment,
--          fence
local pool = read_pool()
if not pool then
  return { 'missing' }
end
if pool.is_gated then
  return { 'gated' }
end
local is_more_due, ids, records = expire_due(pool, tonumber(ARGV[1]))
local lines = {}
for index, id in ipairs(ids) do
  local record = records[index]
  lines[index] = joined({ id, digits(record.quantity), digits(record.segment), record.fence })
end
if #ids > 0 then
  write_pool(pool)
end
return { 'expired', digits(pool.sequence), is_more_due and '1' or '0', table.concat(lines, '\n'), pool.epoch }
