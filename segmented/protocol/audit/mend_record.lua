#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 3 6
-- Correct a record to match the ledger, if it is unchanged since the audit and no later change has named it. An order's
-- hold is corrected too: a reserved order has a hold, which starts again if it was missing; any other has none. The
-- ledger gets an entry that names the record. A repeat finds nothing to correct.
-- ARGV     1 kind ("order", or "change" for the note of a restock or withdrawal)   2 order_id or change_id
--          3 after (sequence up to which the ledger was folded)   4 seen ("-": none; "+" and its text)
--          5 wanted (same format)   6 hold_ms
-- answers  {"outrun"}      more than 1,000 changes or 96 KiB of them since, or one that names the record, or a trim: fold again
--          {"sound"}       the record is correct
--          {"differing"}   the record is neither the seen nor the wanted one
--          {"mended", sequence}
local TAIL_MAX = 1000
local TAIL_BYTES = 98304
local is_order, id, after = ARGV[1] == 'order', ARGV[2], tonumber(ARGV[3])
local wanted = ARGV[5]
local pool = read_pool()
local tail, has_more = entries_after(pool.epoch .. '-' .. digits(after), '+', TAIL_MAX + 1, TAIL_BYTES)
if has_more or tonumber(redis.call('HGET', META, 'ledger_start') or '1') > after + 1 then
  return { 'outrun' }
end
for _, entry in ipairs(tail) do
  if string.find('\n' .. entry[2][6], '\n' .. id .. '\t', 1, true) then
    return { 'outrun' }
  end
end

local key = is_order and ORDERS or CHANGES
local raw = redis.call('HGET', key, id)
local found = raw and '+' .. raw or '-'
local wants_hold = is_order and string.sub(wanted, 1, 3) == '+r\t'
local is_hold_right = not is_order or (redis.call('ZSCORE', HOLDS, id) and true or false) == wants_hold
if found == wanted and is_hold_right then
  return { 'sound' }
end
if found ~= wanted and found ~= ARGV[4] then
  return { 'differing' }
end
local what = wants_hold and 'hold written' or 'hold removed'
if found ~= wanted then
  what = wanted == '-' and 'record removed' or 'record written'
end
append(pool, 'repaired', pool_line(id, 0, '', what))
write_pool(pool)
if wanted == '-' then
  redis.call('HDEL', key, id)
else
  redis.call('HSET', key, id, string.sub(wanted, 2))
end
if wants_hold then
  redis.call('ZADD', HOLDS, 'NX', digits(now_ms + tonumber(ARGV[6])), id)
elseif is_order then
  redis.call('ZREM', HOLDS, id)
end
return { 'mended', digits(pool.sequence) }
