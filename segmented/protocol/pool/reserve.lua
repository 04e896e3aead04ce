#!lua
-- uses shared/pool.lua
-- numbers 1 3?
-- Take units for a while, without a lock: for one order, or for many, each as if alone and in the order given. An id may
-- come twice: the second is a repeat.
-- ARGV     1 hold_ms   2 partial ("1": take what is left)
--          3 publish_after_ms (for submitted orders: when the outbox publishes unfinished ones; "" for others)
--          4 order ids   5 quantities   6 customer ids ("" for none; absent if no order has one): each a JSON list with
--          one item an order, at most 1,000
-- answers  {"missing"}    the pool is not open
--          {"reserved", epoch, sequence, lines, hold_until_ms}   one line per order, separated by newlines, with tabs
--            inside; the end of the hold of all orders taken in this call, by the server's clock. Fewer lines than
--            orders: the others need another call, because the first ones have many parts.
--            mismatch, quantity, customer   the id exists with other content: these were asked for
--            settled, state, quantity, segment, fence, sequence   decided before
--            segment, quantity, parts, sequence, hold_until_ms   a repeat, whose hold starts again. With "own" behind
--                         it: taken by an earlier attempt of this call, whose reply was lost
--            segment, quantity, parts, "+"   a repeat of an order that this call has taken
--            closed       no new orders
--            nobody       the pool limits customers, and the order names none
--            limit, units a customer may have, units that this one has
--            busy, sequence, 0   more holds are due than one step gives back, for this order or an earlier one: ask again
--            drifted      the units of the segments do not add up to the total: written to from outside
--            sold_out, available, reserved, sequence, epoch   the pool's numbers after the whole call
--            segment, quantity, parts   taken, at the answer's sequence; `parts` may be missing
local hold_until = ARGV[3] == '' and digits(now_ms + tonumber(ARGV[1])) or SUBMITTED_UNTIL
local is_partial = ARGV[2] == '1'
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local ids, asked_by, customer_of = cjson.decode(ARGV[4]), cjson.decode(ARGV[5]), cjson.decode(ARGV[6] or '[]')
check_count(#ids)
check_texts(ids)
check_texts(customer_of)
for index = 1, #ids do
  check_quantity(asked_by[index])
end
local raws = raws_of(ids)
read_bought(pool, customer_of)

-- 1. decide; writes nothing but the units of expired holds. Taken units are kept by columns.
-- Round robin over the segments, from call to call; with a run of changes for each if orders are submitted: those that come
-- one after the other are mostly from one segment, so that their envelope locks one row of the order database.
local start = math.floor(pool.sequence / (ARGV[3] == '' and 1 or RUN)) % pool.segment_count
local answers = {}
local count, taken_ids, segments, quantities, parts, customers, asked = 0, {}, {}, {}, {}, {}, {}
local taken_at = {} -- order id -> its place in the columns
local is_plain = pool.customer_limit == 0 and not pool.is_closed
local reserved_before = {} -- ids
local is_told = {} -- order id -> true once a repeat was answered: a second one in this batch is never this call's own

local function note_taken(id, quantity, customer, wanted)
  count = count + 1
  taken_ids[count], segments[count], quantities[count], customers[count] = id, start, quantity, customer
  if quantity ~= wanted then
    asked[count] = wanted
  end
  taken_at[id] = count
end

-- Most orders fit into the segment where the last one was served, and need no other check. They are counted together,
-- and share the texts that are the same for all of one quantity; `book` adds them to the numbers.
local left, plain_sum, plain_answers = units_of(start), 0, {}

local function book()
  if plain_sum > 0 then
    add_units(start, -plain_sum)
    pool.available, pool.reserved = pool.available - plain_sum, pool.reserved + plain_sum
    plain_sum = 0
  end
end

local function plain_answer(quantity)
  local answer = start .. '\t' .. quantity
  plain_answers[quantity] = answer
  return answer
end

local is_stuck = false -- once an order must ask again, later ones must not get its units
local refused_at = {} -- place of an answer -> reason; its line is made last, with the pool's final numbers

local function refused(index, why)
  refused_at[index] = why
  return ''
end

local function take(index, id, quantity, customer)
  book()
  work = work + ORDER_WORK
  if is_stuck then
    return refused(index, 'busy')
  end
  local allowed_quantity, why = allowed(pool, quantity, customer, is_partial)
  if not allowed_quantity then
    is_stuck = why == 'busy'
    is_plain = is_plain and not is_stuck
    return refused(index, why)
  end
  local segment, found = gather(pool, start, allowed_quantity)
  if not segment then
    return 'drifted'
  end
  start = segment -- the next order begins where there were units
  plain_answers = {}
  pool.available, pool.reserved = pool.available - allowed_quantity, pool.reserved + allowed_quantity
  add_bought(pool, customer, allowed_quantity)
  note_taken(id, allowed_quantity, customer, quantity)
  parts[count] = found
  return start .. '\t' .. allowed_quantity .. (found == '' and '' or '\t' .. found)
end

local function repeated(id, record, quantity, customer)
  local mismatch = mismatch_of(record, quantity, customer)
  if mismatch then
    return mismatch
  end
  if record.state ~= 'r' then
    return settled_line(record)
  end
  redis.call('ZADD', HOLDS, 'GT', hold_until, id) -- now: the next order may need due units
  reserved_before[#reserved_before + 1] = id
  local line = { digits(record.segment), digits(record.quantity), record.parts, digits(record.sequence),
    redis.call('ZSCORE', HOLDS, id) }
  if not is_told[id] and own_change(pool, record.sequence) then
    line[6] = 'own'
  end
  is_told[id] = true
  return table.concat(line, '\t')
end

local function repeated_here(at, quantity, customer)
  local mismatch = mismatch_of({ quantity = asked[at] or quantities[at], customer = customers[at] }, quantity, customer)
  return mismatch or table.concat({ digits(segments[at]), digits(quantities[at]), parts[at] or '', '+' }, '\t')
end

for index = 1, #ids do
  if work >= WORK_MAX then
    break
  end
  local id, quantity, customer = ids[index], asked_by[index], customer_of[index] or ''
  local at = taken_at[id]
  local raw = not at and raws(index)
  local queued_otherwise = not at and has_entries and (not raw or is_undone(raw)) and queued_mismatch(id, quantity, customer)
  if at then
    answers[index] = repeated_here(at, quantity, customer)
  elseif raw and not is_undone(raw) then
    -- it may have expired in this call, to make room for an earlier order
    local record = readable(due_so_far > 0 and redis.call('HGET', ORDERS, id) or raw)
    if record then
      note_work(record)
    end
    answers[index] = record and repeated(id, record, quantity, customer) or 'drifted'
  elseif queued_otherwise then
    answers[index] = queued_otherwise
  elseif is_plain and left >= quantity then
    left, plain_sum, count = left - quantity, plain_sum + quantity, count + 1
    taken_ids[count], segments[count], quantities[count], customers[count] = id, start, quantity, customer
    taken_at[id] = count
    answers[index] = plain_answers[quantity] or plain_answer(quantity)
  else
    answers[index] = take(index, id, quantity, customer)
    left = units_of(start)
  end
end
book()

-- 2. write
if count > 0 then
  local lines, fields, holds = {}, {}, {}
  local sequence = '\t' .. digits(pool.sequence + 1)
  -- Plain orders of one segment and quantity that follow each other share their record, and what their lines end with.
  local first, last_quantity, last_segment, ending, plain_record = 1, nil, nil, nil, nil
  local function end_lines(next_index)
    if next_index > first then
      lines[#lines + 1] = table.concat(taken_ids, ending .. '\n', first, next_index - 1) .. ending
    end
    first = next_index
  end
  for index = 1, count do
    local id, found, customer, wanted = taken_ids[index], parts[index], customers[index], asked[index]
    local quantity, segment = quantities[index], segments[index]
    if quantity ~= last_quantity or segment ~= last_segment then
      end_lines(index)
      last_quantity, last_segment = quantity, segment
      ending = '\t' .. quantity .. '\t' .. segment
      plain_record = 'r' .. ending .. sequence
    end
    local record = plain_record
    if customer ~= '' or found or wanted then
      end_lines(index)
      lines[#lines + 1] = joined({ id .. ending, found or '', customer })
      record = joined({ record, found or '', customer, wanted and digits(wanted) or '' })
      first = index + 1
    end
    fields[2 * index - 1], fields[2 * index] = id, record
    holds[2 * index - 1], holds[2 * index] = hold_until, id
  end
  end_lines(count + 1)
  append(pool, 'reserved', table.concat(lines, '\n'))
  redis.call('HSET', ORDERS, unpack(fields))
  redis.call('ZADD', HOLDS, unpack(holds))
end
if count > 0 or due_so_far > 0 then
  write_pool(pool)
end
for index, why in pairs(refused_at) do
  answers[index] = refusal_line(pool, why)
end
if ARGV[3] ~= '' then
  enter_outbox(taken_ids, ARGV[3])
  enter_outbox(reserved_before, ARGV[3])
end
return { 'reserved', pool.epoch, digits(pool.sequence), table.concat(answers, '\n'), hold_until }
