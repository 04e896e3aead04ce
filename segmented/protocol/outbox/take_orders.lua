#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/segments.lua
-- uses shared/outbox.lua
-- uses shared/assignment.lua
-- numbers 2:1 3 4 5 6 8 9?
-- Begin to process the submitted orders of one message. For those whose stock is not decided, and those whose holder's
-- lease has expired, this takes the lock of one free segment for all of them, and units from that segment first. An order
-- that was begun before but not finished may be the one that kills its workers, so it shares a message with fewer and
-- fewer others. Each order is the worker's for work_ms, and a repeat after a lost reply gets the same answer.
-- ARGV     1 holder_id (of this message's worker)   2 ttl_ms   3 hold_ms (of orders that leave the outbox)
--          4 work_ms (after which the outbox may publish them again, and another worker may begin)
--          5 begun_max   6 above (a token that the database has accepted: the new one is higher)
--          7 epoch (in which the worker has asked the order database for these orders; "" without one)
--          8 earlier (how many orders of this message earlier steps have answered)   9 segment that one of these took for
--          it ("" if none did)   10 its fence; without a segment, asked (shared/line.lua), or "" for "*"
--          11 queue and 12 step of the worker ("" for none)   13 on: order ids, at most 1,000, each once
-- answers  {"elsewhere", queue, step}   the pool names these for its orders, and the worker has another queue or step
--          {"late", epoch}   it is in another epoch: an earlier one may have sold the orders
--          {"taken", epoch, sequence, free_in_ms, lines, ahead}   ("taken_gated" if an order database decides the pool's
--          orders). ahead: the processes ahead in the pool's line, only if no segment was free.
--          one line per order, separated by newlines, with tabs inside. Fewer lines than orders: the others need another
--          call, since a step answers 200 orders, or fewer with many parts.
--            settled, state, quantity, segment, fence, sequence   decided before, or refused now
--            unknown      no such order, or one that was not submitted: a cart has it, or a grant
--            dead, begun  it was begun too often
--            alone        too many others in this message
--            in_hand, free_in_ms   another worker has it, or another holder's lease on it is alive
--            busy, free_in_ms      no segment is free, or only for the processes that wait in the pool's line, or (0) more
--                                holds are due than one step gives back
--            drifted      the units of the segments do not add up to the total: written to from outside
--            work, quantity, segment, parts, customer, asked, fence, sequence, begun
local holder_id, ttl_ms, begun_max = ARGV[1], ARGV[2], tonumber(ARGV[5])
local hold_until, work_until_ms = digits(now_ms + tonumber(ARGV[3])), now_ms + tonumber(ARGV[4])
local WITH_OTHERS = { [0] = MANY, 10 } -- maximum orders in a message, by how often one of them was begun; then 1
do
  local refusal = assigned_elsewhere(ARGV[11], ARGV[12])
  if refusal then
    return refusal
  end
end
local pool = read_pool()
if pool.is_gated and ARGV[7] ~= '' and ARGV[7] ~= pool.epoch then
  return { 'late', pool.epoch }
end
local ids = { unpack(ARGV, 13) }
local message_size = tonumber(ARGV[8]) + #ids
local raws, entries = raws_of(ids), redis.call('HMGET', ENTRIES, unpack(ids))
local waiting = redis.call('ZMSCORE', OUTBOX, unpack(ids))
local was_dead = redis.call('HLEN', DEAD) > 0 and redis.call('HMGET', DEAD, unpack(ids)) or {}

-- Read before the first write, since a text may be unreadable.
do
  local customers = {}
  for index = 1, #ids do
    entries[index] = entry_of(entries[index])
    customers[index] = entries[index].customer
  end
  read_bought(pool, customers)
end

local answers, left, records, taken, regranted, refused = {}, {}, {}, {}, {}, {}
local line = segment_line(ARGV[9] == '' and ARGV[10] ~= '' and ARGV[10] or '*')
local segment, fence, busy_ms, ahead, is_earlier

local function hold_of(index)
  return waiting[index] and SUBMITTED_UNTIL or hold_until
end

local answered = 0

do -- for Lua allows 200 local variables at once
  local has_looked, is_stuck = false, false

  -- The lock of one segment, taken when the first order needs it.
  local function has_segment()
    if not has_looked then
      has_looked = true
      is_earlier = ARGV[9] ~= '' and redis.call('MGET', lock_of(tonumber(ARGV[9])))[1] == holder_id
      if is_earlier then
        segment, fence = tonumber(ARGV[9]), ARGV[10]
        holders[segment] = holder_id
      else
        segment, busy_ms, ahead = take_segment_in_turn(pool, line, holder_id, ttl_ms)
      end
      if segment and not is_earlier then
        holders[segment] = holder_id
        fence = next_fence(pool, tonumber(ARGV[6]))
      end
    end
    return segment
  end

  local function refuse(id, entry, note)
    local record = new_record('f', entry)
    record.id, record.note = id, note
    refused[#refused + 1] = record
    return record
  end

  -- Decide an order without units: return its record, or nil and the answer or refusal. It was accepted before, so a pool
  -- that has been closed since still serves it.
  local function decided(id, entry)
    if not has_segment() then
      return nil, 'busy\t' .. busy_ms
    end
    if is_stuck then
      return nil, 'busy\t0'
    end
    local is_closed = pool.is_closed
    pool.is_closed = false
    local quantity, why = allowed(pool, entry.quantity, entry.customer, false)
    pool.is_closed = is_closed
    if not quantity then
      if why == 'busy' then
        is_stuck = true
        return nil, 'busy\t0'
      end
      return nil, nil, refuse(id, entry, why == 'sold_out' and '' or 'limit')
    end
    local first, parts = gather(pool, segment, quantity)
    if not first then
      return nil, 'drifted'
    end
    if parts == '' and first ~= segment then
      parts = digits(first) .. ':' .. digits(quantity)
    end
    pool.available, pool.reserved = pool.available - quantity, pool.reserved + quantity
    add_bought(pool, entry.customer, quantity)
    local record = new_record('r', entry)
    record.segment, record.parts, record.holder, record.fence, record.id = segment, parts, holder_id, fence, id
    taken[#taken + 1] = record
    return record
  end

  -- Move an order of another holder, whose lease has expired, to this segment.
  local function moved(id, record)
    if not has_segment() then
      return nil, 'busy\t' .. busy_ms
    end
    local parts = record.parts == '' and digits(record.segment) .. ':' .. digits(record.quantity) or record.parts
    record.parts = parts == digits(segment) .. ':' .. digits(record.quantity) and '' or parts
    record.segment, record.holder, record.fence, record.id = segment, holder_id, fence, id
    regranted[#regranted + 1] = record
    return record
  end

  local function own_or_moved(id, record)
    if record.holder == '' then
      return record
    end
    if has_lease(record) then
      if record.holder == holder_id then
        return record
      end
      return nil, 'in_hand\t' .. digits(math.max(0, redis.call('PTTL', lock_of(record.segment))))
    end
    return moved(id, record)
  end

  local function begin(index, id)
    local raw = binding(raws(index), id)
    local record, entry = raw and readable(due_so_far > 0 and redis.call('HGET', ORDERS, id) or raw), entries[index]
    work = work + 5 -- besides its parts
    if record then
      note_parts(record)
    end
    local is_own = entry.worker == holder_id
    local answer
    if raw and not record then
      answers[index] = 'drifted'
    elseif record and record.state ~= 'r' then
      answers[index] = settled_line(record)
      left[#left + 1] = id
    elseif not (record and (waiting[index] or was_dead[index]) or not record and entry.quantity) then
      answers[index] = 'unknown'
      left[#left + 1] = id
    elseif entry.until_ms > now_ms and not is_own then
      answers[index] = 'in_hand\t' .. digits(entry.until_ms - now_ms)
    elseif was_dead[index] or entry.begun >= begun_max and not is_own then
      bury(id, entry, hold_until)
      answers[index] = 'dead\t' .. digits(entry.begun)
    elseif not is_own and message_size > (WITH_OTHERS[entry.begun] or 1) then
      answers[index] = 'alone'
    else
      local ending
      if record then
        record, answer = own_or_moved(id, record)
        if record then
          redis.call('ZADD', HOLDS, 'GT', hold_of(index), id) -- now: the next order may need due units
        end
      else
        record, answer, ending = decided(id, entry)
      end
      answers[index] = answer
      if record then
        record.begun = entry.begun + (is_own and 0 or 1)
        entry.begun, entry.until_ms, entry.worker = record.begun, work_until_ms, holder_id
        entry.published = 0 -- counts from this begin, so that it is soon published again if the worker dies
        records[index], entries[index] = record, entry
      elseif ending then
        records[index] = ending
      end
    end
  end

  for index, id in ipairs(ids) do
    if work >= WORK_MAX then
      break
    end
    answered = index
    begin(index, id)
  end
end

-- Write decided orders to the ledger and their records; orders that got units come before refused ones.
local function write_down(kind, changed_records)
  if #changed_records == 0 then
    return
  end
  local lines, fields = {}, {}
  for index, record in ipairs(changed_records) do
    lines[index] = line_of(record.id, record, record.note)
  end
  append(pool, kind, table.concat(lines, '\n'))
  for index, record in ipairs(changed_records) do
    record.sequence = pool.sequence
    fields[2 * index - 1], fields[2 * index] = record.id, packed(record)
  end
  redis.call('HSET', ORDERS, unpack(fields))
end
write_down('reserved', taken)
write_down('granted', regranted)
write_down('refused', refused)
write_buried()
if segment and not is_earlier then
  note_free_at(pool, segment, now_ms + tonumber(ttl_ms))
end

local notes, holds, places = {}, {}, {}
for index = 1, answered do
  local id, record = ids[index], records[index]
  if record and record.state == 'f' then
    answers[index] = settled_line(record)
    left[#left + 1] = id
  elseif record then
    notes[#notes + 1], notes[#notes + 2] = id, packed_entry(entries[index])
    holds[#holds + 1], holds[#holds + 2] = hold_of(index), id
    places[#places + 1], places[#places + 2] = digits(work_until_ms), id
    answers[index] = table.concat({ 'work', digits(record.quantity), digits(record.segment), record.parts,
      record.customer, record.asked, record.fence, digits(record.sequence), digits(record.begun) }, '\t')
  end
end
if #notes > 0 then
  redis.call('HSET', ENTRIES, unpack(notes))
  redis.call('ZADD', HOLDS, 'GT', unpack(holds))
  redis.call('ZADD', OUTBOX, 'XX', unpack(places))
end
if #left > 0 then
  has_outbox, has_entries = true, true
  leave_outbox(left, 'expired')
end
local is_unused = segment and not is_earlier and #taken == 0 and #regranted == 0
if is_unused then
  redis.call('DEL', lock_of(segment)) -- nothing was taken under it
  note_free_at(pool, segment, now_ms)
  redis.pcall('PUBLISH', FREED, holder_id)
end
if segment or due_so_far > 0 then
  write_pool(pool)
end
local kind, next_ms = pool.is_gated and 'taken_gated' or 'taken', busy_ms or free_in_ms()
if segment then
  tell_following(line, is_unused and 0 or math.max(0, tonumber(next_ms)))
elseif not busy_ms then
  pass_turn(line, pool.line, now_us, 0) -- no order needed a segment
end
return { kind, pool.epoch, digits(pool.sequence), next_ms, table.concat(answers, '\n'), ahead }
