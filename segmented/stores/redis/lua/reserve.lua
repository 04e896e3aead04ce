#!lua
-- uses shared/pool.lua
-- Take units for a while, without a lock: for one order, or for many, each as if alone and in the order given. An id may
-- come twice: the second is a repeat.
-- ARGV     1 hold_ms   2 partial ("1": whatever is left will do)
--          then for each order, at most 1,000: order_id, quantity, customer_id ("" for none)
-- answers  {"missing"}    the pool is not open
--          {"reserved", epoch, sequence, lines}   one line an order, with newlines between and tabs in them:
--            mismatch     the id exists with other content
--            settled, state, quantity, segment, fence, sequence   decided before
--            segment, quantity, parts, sequence   a repeat, held anew; "+": taken in this call
--            closed       no new orders
--            nobody       the pool limits customers, and the order names none
--            limit, units a customer may have, units that this one has
--            busy, sequence, 0   more holds are due than one step gives back: ask again
--            sold_out, available, reserved, sequence
--            segment, quantity, parts   taken, at the answer's sequence; `parts` may be missing
local hold_until, is_partial = digits(now_ms + tonumber(ARGV[1])), ARGV[2] == '1'
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local ids = {}
for index = 3, #ARGV, 3 do
  ids[#ids + 1] = ARGV[index]
end
local raws = redis.call('HMGET', ORDERS, unpack(ids))

-- 1. decide; nothing is written but what due holds give back. What is taken is kept by columns.
local start = pool.sequence % pool.segment_count -- round robin over the segments, from call to call
local answers = {}
local count, taken_ids, segments, quantities, parts, customers, asked = 0, {}, {}, {}, {}, {}, {}
local taken_at = {} -- order id -> its place in the columns
local is_plain = pool.customer_limit == 0 and not pool.is_closed

local function note_taken(id, quantity, customer, wanted)
  count = count + 1
  taken_ids[count], segments[count], quantities[count], customers[count] = id, start, quantity, customer
  if quantity ~= wanted then
    asked[count] = wanted
  end
  taken_at[id] = count
end

local function take(id, quantity, customer)
  local allowed_quantity, refused = allowed(pool, quantity, customer, is_partial)
  if not allowed_quantity then
    return refused
  end
  local found
  start, found = gather(pool, start, allowed_quantity) -- the next order begins where there were units
  pool.available, pool.reserved = pool.available - allowed_quantity, pool.reserved + allowed_quantity
  add_bought(pool, customer, allowed_quantity)
  note_taken(id, allowed_quantity, customer, quantity)
  parts[count] = found
  return start .. '\t' .. allowed_quantity .. (found == '' and '' or '\t' .. found)
end

local function repeated(id, record, quantity, customer)
  if not is_same_order(record, quantity, customer) then
    return 'mismatch'
  end
  if record.state ~= 'r' then
    return settled_line(record)
  end
  redis.call('ZADD', HOLDS, 'GT', hold_until, id) -- at once: the next order may want what is due
  return table.concat({ digits(record.segment), digits(record.quantity), record.parts, digits(record.sequence) }, '\t')
end

local function repeated_here(at, quantity, customer)
  if (asked[at] or quantities[at]) ~= quantity or customers[at] ~= customer then
    return 'mismatch'
  end
  return table.concat({ digits(segments[at]), digits(quantities[at]), parts[at] or '', '+' }, '\t')
end

for index, id in ipairs(ids) do
  local quantity, customer = tonumber(ARGV[3 * index + 1]), ARGV[3 * index + 2]
  if taken_at[id] then
    answers[index] = repeated_here(taken_at[id], quantity, customer)
  elseif raws[index] then
    -- it may have been given back as due, for an order before it in this very call
    local record = due_so_far > 0 and read_order(id) or parsed(raws[index])
    answers[index] = repeated(id, record, quantity, customer)
  elseif is_plain and units_of(start) >= quantity then
    add_units(start, -quantity)
    pool.available, pool.reserved = pool.available - quantity, pool.reserved + quantity
    note_taken(id, quantity, customer, quantity)
    answers[index] = start .. '\t' .. quantity
  else
    answers[index] = take(id, quantity, customer)
  end
end

-- 2. write
if count > 0 then
  local lines, fields, holds = {}, {}, {}
  local sequence = digits(pool.sequence + 1)
  for index = 1, count do
    local id, found, customer, wanted = taken_ids[index], parts[index] or '', customers[index], asked[index]
    local head = quantities[index] .. '\t' .. segments[index]
    local line, record = id .. '\t' .. head, 'r\t' .. head .. '\t' .. sequence
    if found ~= '' or customer ~= '' or wanted then
      line = trimmed(line .. '\t' .. found .. '\t' .. customer)
      record = trimmed(record .. '\t' .. found .. '\t' .. customer .. '\t' .. (wanted or ''))
    end
    lines[index] = line
    fields[2 * index - 1], fields[2 * index] = id, record
    holds[2 * index - 1], holds[2 * index] = hold_until, id
  end
  append(pool, 'reserved', table.concat(lines, '\n'))
  redis.call('HSET', ORDERS, unpack(fields))
  redis.call('ZADD', HOLDS, unpack(holds))
end
if count > 0 or due_so_far > 0 then
  write_pool(pool)
end
return { 'reserved', pool.epoch, digits(pool.sequence), table.concat(answers, '\n') }
