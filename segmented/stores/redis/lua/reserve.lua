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
--            reserved, segment, quantity, parts, sequence   a repeat, held anew
--            closed       no new orders
--            nobody       the pool limits customers, and the order names none
--            limit, units a customer may have, units that this one has
--            busy, sequence, 0   more holds are due than one step gives back: ask again
--            sold_out, available, reserved, sequence
--            reserved, segment, quantity, parts   taken, at the answer's sequence
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

-- 1. decide; of the units, only the numbers in this script change
local start = pool.sequence % pool.segment_count -- round robin over the segments, from batch to batch
local answers, held, taken_ids, taken_records = {}, {}, {}, {}
local seen = {}

local function take(id, quantity, customer)
  local count, refused = allowed(pool, quantity, customer, is_partial)
  if not count then
    return refused
  end
  local segment, parts = gather(pool, start, count)
  start = segment -- the next order begins where there were units
  pool.available, pool.reserved = pool.available - count, pool.reserved + count
  add_bought(pool, customer, count)
  local record = { state = 'r', quantity = count, segment = segment, parts = parts, customer = customer,
    asked = count < quantity and digits(quantity) or '', holder = '', fence = '' }
  seen[id] = record
  taken_ids[#taken_ids + 1], taken_records[#taken_records + 1] = id, record
  held[#held + 1], held[#held + 2] = hold_until, id
  return trimmed(table.concat({ 'reserved', digits(segment), digits(count), parts }, '\t'))
end

local function repeated(id, record, quantity, customer)
  if not is_same_order(record, quantity, customer) then
    return 'mismatch'
  end
  if record.state ~= 'r' then
    return settled_line(record)
  end
  if not record.sequence then -- taken in this very call
    return table.concat({ 'reserved', digits(record.segment), digits(record.quantity), record.parts, '+' }, '\t')
  end
  redis.call('ZADD', HOLDS, 'GT', hold_until, id) -- at once: the next order may want what is due
  return table.concat({ 'reserved', digits(record.segment), digits(record.quantity), record.parts,
    digits(record.sequence) }, '\t')
end

for index, id in ipairs(ids) do
  local quantity, customer = tonumber(ARGV[3 * index + 1]), ARGV[3 * index + 2]
  local record = seen[id]
  if not record and raws[index] then
    -- it may have been given back as due, for an order before it in this very call
    record = due_so_far > 0 and read_order(id) or parsed(raws[index])
  end
  answers[index] = record and repeated(id, record, quantity, customer) or take(id, quantity, customer)
end

-- 2. write
if #taken_ids > 0 then
  local lines, fields = {}, {}
  for index, id in ipairs(taken_ids) do
    lines[index] = line_of(id, taken_records[index])
  end
  append(pool, 'reserved', table.concat(lines, '\n'))
  for index, id in ipairs(taken_ids) do
    taken_records[index].sequence = pool.sequence
    fields[2 * index - 1], fields[2 * index] = id, packed(taken_records[index])
  end
  redis.call('HSET', ORDERS, unpack(fields))
end
if #held > 0 then
  redis.call('ZADD', HOLDS, unpack(held))
end
if #taken_ids > 0 or due_so_far > 0 then
  write_pool(pool)
end
return { 'reserved', pool.epoch, digits(pool.sequence), table.concat(answers, '\n') }
