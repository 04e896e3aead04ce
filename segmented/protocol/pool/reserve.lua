#!lua
-- uses shared/pool.lua
-- numbers 1 3?
-- Take units for a while, without a lock: for one order, or for many, each as if alone and in the order given. An id may
-- come twice: the second is a repeat.
-- ARGV     1 hold_ms   2 partial ("1": take what is left)
--          3 publish_after_ms (for submitted orders: when the outbox publishes unfinished ones; "" for others)
--          4 order ids   5 quantities, or one number if all orders have the same   6 customer ids ("" for none; absent if no
--          order has one): each a JSON list with one item an order, at most 1,000
-- answers  {"reserved", epoch, sequence, lines, hold_until_ms}   one line per order, separated by newlines, with tabs
--            inside; the end of the hold of all orders taken in this call, by the server's clock. Fewer lines than
--            orders: the others need another call, because the first ones have many parts.
--            mismatch, quantity, customer   the id exists with other content: this quantity, "=" or "?" as in mismatch_of
--            settled, state, quantity, segment, fence, sequence   decided before
--            segment, quantity, parts, sequence, hold_until_ms   a repeat, whose hold starts again. With "own" behind
--                         it: taken by an earlier attempt of this call, whose reply was lost
--            segment, quantity, parts, "+"   a repeat of an order that this call has taken
--            closed       no new orders
--            nobody       the pool limits customers, and the order names none
--            limit, units a customer may have, units that this one has
--            busy, sequence, 0   more holds are due than one step gives back, for this order or an earlier one: ask again
--            drifted      the units of the segments do not add up to the total: written to from outside
--            sold_out, available, reserved, sequence, epoch, ms   the pool's numbers after the whole call, and the time
--                         until the first hold ends ("" if none does)
--            segment, quantity, parts   taken, at the answer's sequence; `parts` may be missing
local hold_until = ARGV[3] == '' and digits(now_ms + tonumber(ARGV[1])) or SUBMITTED_UNTIL
local is_partial = ARGV[2] == '1'
local pool = read_pool()
local ids, asked_by, customer_of = texts_in(ARGV[4]), cjson.decode(ARGV[5]), texts_in(ARGV[6] or '[]')
check_count(#ids)
local asked_by_all = type(asked_by) == 'number' and asked_by or nil
for index = 1, asked_by_all and 1 or #ids do
  check_quantity(asked_by_all or asked_by[index])
end
read_bought(pool, customer_of)

-- 1. decide; writes nothing but the units of expired holds.
-- Round robin over the segments, from call to call; with a run of changes for each if orders are submitted: those that come
-- one after the other are mostly from one segment, so that their envelope locks one row of the order database.
local start = math.floor(pool.sequence / (ARGV[3] == '' and 1 or RUN)) % pool.segment_count
local answers = {}
local count, taken_ids, taken, customers = 0, {}, {}, {} -- of each taken order its id, its group, and its customer if it has one
local taken_at = {} -- order id -> its place among them
local is_plain = pool.customer_limit == 0 and not pool.is_closed
local reserved_before = {} -- ids
local is_told = {} -- order id -> true once a repeat was answered: a second one in this batch is never this call's own

-- Most orders fit into the segment where the last one was served, and need no other check. They are counted together;
-- `book` adds them to the numbers.
local left, plain_sum = units_of(start), 0

-- Orders that took as many units from `start` share a group: the text of their answers, lines and records without the id.
-- Those that have all units from there share one by quantity; others have a group each, `asked` if they asked for more.
local groups = {}

local function group_of(quantity, parts, asked)
  local is_plain_group = parts == '' and not asked
  local group = is_plain_group and groups[quantity] or { segment = start, quantity = quantity, parts = parts, asked = asked,
    answer = start .. '\t' .. quantity .. (parts == '' and '' or '\t' .. parts), ending = '\t' .. quantity .. '\t' .. start,
    is_plain = is_plain_group }
  if is_plain_group then
    groups[quantity] = group
  end
  return group
end

local function book()
  if plain_sum > 0 then
    add_units(start, -plain_sum)
    pool.available, pool.reserved = pool.available - plain_sum, pool.reserved + plain_sum
    plain_sum = 0
  end
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
  if segment ~= start then
    start, groups = segment, {} -- the next order begins where there were units
  end
  pool.available, pool.reserved = pool.available - allowed_quantity, pool.reserved + allowed_quantity
  add_bought(pool, customer, allowed_quantity)
  local group = group_of(allowed_quantity, found, allowed_quantity ~= quantity and quantity or nil)
  count = count + 1
  taken_ids[count], taken[count], customers[count], taken_at[id] = id, group, customer ~= '' and customer or nil, count
  return group.answer
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
  local group = taken[at]
  local here = { quantity = group.asked or group.quantity, customer = customers[at] or '' }
  return mismatch_of(here, quantity, customer)
    or table.concat({ digits(group.segment), digits(group.quantity), group.parts, '+' }, '\t')
end

local raws = raws_of(ids)
for index = 1, #ids do
  if work >= WORK_MAX then
    break
  end
  local id, quantity, customer = ids[index], asked_by_all or asked_by[index], customer_of[index] or ''
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
    local group = groups[quantity] or group_of(quantity, '')
    left, plain_sum, count = left - quantity, plain_sum + quantity, count + 1
    taken_ids[count], taken[count], taken_at[id] = id, group, count
    if customer ~= '' then
      customers[count] = customer
    end
    answers[index] = group.answer
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
  -- Plain orders of one group that follow each other share their record, and what their lines end with.
  local first, last, plain_record = 1, nil, nil
  local function end_lines(next_index)
    if next_index > first then
      lines[#lines + 1] = table.concat(taken_ids, last.ending .. '\n', first, next_index - 1) .. last.ending
    end
    first = next_index
  end
  for index = 1, count do
    local id, group, customer = taken_ids[index], taken[index], customers[index]
    if group ~= last then
      end_lines(index)
      last, plain_record = group, 'r' .. group.ending .. sequence
    end
    local record = plain_record
    if customer or not group.is_plain then
      end_lines(index)
      lines[#lines + 1] = joined({ id .. group.ending, group.parts, customer or '' })
      record = joined({ record, group.parts, customer or '', group.asked and digits(group.asked) or '' })
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
