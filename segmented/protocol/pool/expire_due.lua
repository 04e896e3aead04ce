#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1
-- Expire due holds, longest ago first, a bounded number in one step. A hold with a live lease is left alone. The change is
-- noted for ten minutes in <holds>:<call> (string), so that an attempt after a lost reply answers with the same orders.
-- ARGV     1 limit, at most 1,000; of orders with many parts it expires fewer
-- answers  {"gated"}   the order database of this pool must decide first
--          {"expired", sequence, more ("1": more are due), lines, epoch}   one line per order: order_id, quantity, segment,
--          fence
local pool = read_pool()
if pool.is_gated then
  return { 'gated' }
end
local NOTED_MS = 600000
local note = HOLDS .. ':' .. this_call

local function expired(sequence, is_more_due, lines)
  return { 'expired', sequence, is_more_due and '1' or '0', table.concat(lines, '\n'), pool.epoch }
end

local noted = is_further and redis.call('GET', note)
local own = noted and own_change(pool, tonumber(noted))
if own then
  local lines = {}
  for line in string.gmatch(own.lines, '[^\n]+') do
    local id, count, segment, fence = string.match(line, '^([^\t]*)\t(%d+)\t(%d*)\t?[^\t]*\t?[^\t]*\t?(%d*)')
    lines[#lines + 1] = joined({ id, count, segment, fence })
  end
  return expired(noted, redis.call('ZCOUNT', HOLDS, '-inf', now_ms) > 0, lines)
end
local is_more_due, ids, records = expire_due(pool, tonumber(ARGV[1]))
local lines = {}
for index, id in ipairs(ids) do
  local record = records[index]
  lines[index] = joined({ id, digits(record.quantity), digits(record.segment), record.fence })
end
if #ids > 0 then
  write_pool(pool)
  redis.call('SET', note, digits(pool.sequence), 'PX', NOTED_MS)
end
return expired(digits(pool.sequence), is_more_due, lines)
