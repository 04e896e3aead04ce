#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 3
-- Correct a number to match the ledger: the caller has folded the ledger up to a change, and the script adds the later
-- changes. It adds the difference and sets nothing; only a non-integer counts as 0 and is overwritten. The ledger gets
-- an entry that names the number. A repeat finds nothing to correct.
-- ARGV     1 kind ("total", "segment" or "customer")   2 name of the total, segment, or customer id
--          3 after (sequence)   4 expected at that change
-- answers  {"outrun"}   more than 1,000 changes or 96 KiB of them since, or one that redistributes the units, or a trim: fold again
--          {"sound"}    the number is correct
--          {"mended", sequence}
local TAIL_MAX = 1000
local TAIL_BYTES = 98304
local FREE_SIGNS = { reserved = -1, cancelled = 1, expired = 1, restocked = 1, withdrawn = -1,
  sent = -1, received = 1 }
local SIGNS = {
  available = FREE_SIGNS,
  segment = FREE_SIGNS,
  reserved = { reserved = 1, confirmed = -1, cancelled = -1, expired = -1 },
  confirmed = { confirmed = 1 },
  restocked = { restocked = 1 },
  withdrawn = { withdrawn = 1 },
  sent = { sent = 1 },
  received = { received = 1 },
  customer = { reserved = 1, cancelled = -1, expired = -1 },
}
local REDISTRIBUTES = { resized = { segment = true, segment_count = true }, closed = { closed = true } }

local kind, name, after, expected = ARGV[1], ARGV[2], tonumber(ARGV[3]), whole(ARGV[4])
local signs = SIGNS[kind == 'total' and name or kind] or {}
local pool = read_pool()
local tail, has_more = entries_after(pool.epoch .. '-' .. digits(after), '+', TAIL_MAX + 1, TAIL_BYTES)
if has_more or tonumber(redis.call('HGET', META, 'ledger_start') or '1') > after + 1 then
  return { 'outrun' }
end

local function units_in(line)
  local quantity, segment, parts, customer = string.match(line, '^[^\t]*\t(%d+)\t?(%d*)\t?([^\t]*)\t?([^\t]*)')
  quantity = tonumber(quantity)
  if kind == 'customer' then
    return customer == name and quantity or 0
  end
  if kind == 'total' then
    return quantity
  end
  local sum = 0
  each_part({ parts = parts, segment = tonumber(segment), quantity = quantity }, function(own, count)
    if own and own % pool.segment_count == tonumber(name) then
      sum = sum + count
    end
  end)
  return sum
end

for _, entry in ipairs(tail) do
  local what, lines = entry[2][2], entry[2][6]
  local spread = REDISTRIBUTES[what]
  if spread and (spread[name] or spread[kind]) then
    return { 'outrun' }
  end
  if signs[what] then
    for line in string.gmatch(lines, '[^\n]+') do
      expected = expected + signs[what] * units_in(line)
    end
  end
end

local key = kind == 'total' and META or kind == 'segment' and STOCK or CUSTOMERS
local found = redis.call('HGET', key, name) or '0'
local is_number = found == '0' or string.match(found, '^%-?[1-9]%d*$') and #found < 16
local difference = expected - (is_number and tonumber(found) or 0)
if difference == 0 and is_number then
  return { 'sound' }
end
local note = kind .. ' ' .. name .. ' by ' .. digits(difference)
append(pool, 'repaired', pool_line('', math.abs(difference), '', note))
write_pool(pool)
if not is_number then
  redis.call('HSET', key, name, '0')
end
redis.call('HINCRBY', key, name, digits(difference))
if kind == 'total' and name == 'available' and difference > 0 then
  note_increase(pool)
end
if kind == 'customer' and expected == 0 then
  redis.call('HDEL', key, name)
end
return { 'mended', digits(pool.sequence) }
