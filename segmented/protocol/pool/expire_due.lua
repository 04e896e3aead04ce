#!lua flags=allow-oom
-- uses shared/pool.lua
-- Give back what lapsed holds kept, longest ago first, a bounded number in one step. A hold whose lease lives is left.
-- ARGV     1 limit, at most 1,000
-- answers  {"missing"}   {"gated"}   whoever decides the orders of this pool must be asked first
--          {"expired", sequence, more ("1": more are due), lines}   one line an order: order_id, quantity, segment, fence
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
  lines[index] = trimmed(table.concat({ id, digits(record.quantity), digits(record.segment), record.fence }, '\t'))
end
if #ids > 0 then
  write_pool(pool)
end
return { 'expired', digits(pool.sequence), is_more_due and '1' or '0', table.concat(lines, '\n') }
