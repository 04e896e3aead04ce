#!lua
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- numbers 1
-- Accept orders whose stock a worker decides: note their request, and that they must be published.
-- ARGV     1 publish_after_ms   then for each order, at most 1,000: order_id, quantity, customer_id ("" for none)
-- answers  {"queued", epoch, lines}   one line per order, separated by newlines, with tabs inside:
--            mismatch, quantity, customer   the id exists with other content: this quantity, "=" or "?" as in mismatch_of
--            settled, state, quantity, segment, fence, sequence   decided before
--            reserved, segment, quantity, parts, sequence   units are taken for it
--            closed       no new orders
--            nobody       the pool limits customers, and the order names none
--            queued, replay ("1": it was before, and not by an earlier attempt of this call, whose reply was lost)
local pool = read_pool()
local ids, answers, fields, waiting = {}, {}, {}, {}
for index = 2, #ARGV, 3 do
  ids[#ids + 1] = ARGV[index]
  check_quantity(tonumber(ARGV[index + 1]))
end
check_count(#ids)
local raws, entries = redis.call('HMGET', ORDERS, unpack(ids)), redis.call('HMGET', ENTRIES, unpack(ids))
local queued_here = {}

local function known(id, record, quantity, customer)
  local mismatch = mismatch_of(record, quantity, customer)
  if mismatch then
    return mismatch
  end
  if record.state ~= 'r' then
    return settled_line(record)
  end
  waiting[#waiting + 1] = id
  redis.call('ZADD', HOLDS, SUBMITTED_UNTIL, id)
  return table.concat({ 'reserved', digits(record.segment), digits(record.quantity), record.parts,
    digits(record.sequence) }, '\t')
end

for index, id in ipairs(ids) do
  local quantity, customer = tonumber(ARGV[3 * index]), ARGV[3 * index + 1]
  local entry = queued_here[id] or entry_of(entries[index])
  if raws[index] and not is_undone(raws[index]) then
    answers[index] = known(id, parsed(raws[index]), quantity, customer)
  elseif entry.quantity then
    local mismatch = mismatch_of(entry, quantity, customer)
    local is_own = is_further and entry.by == this_call and not queued_here[id]
    answers[index] = mismatch or is_own and 'queued\t0' or 'queued\t1'
    waiting[#waiting + 1] = not mismatch and id or nil
    queued_here[id] = not mismatch and entry or queued_here[id]
  elseif pool.is_closed then
    answers[index] = 'closed'
  elseif pool.customer_limit > 0 and customer == '' then
    answers[index] = 'nobody'
  else
    entry.quantity, entry.customer, entry.by, queued_here[id] = quantity, customer, this_call, entry
    fields[#fields + 1], fields[#fields + 2] = id, packed_entry(entry)
    waiting[#waiting + 1] = id
    answers[index] = 'queued\t0'
  end
end
if #fields > 0 then
  redis.call('HSET', ENTRIES, unpack(fields))
end
enter_outbox(waiting, ARGV[1])
return { 'queued', pool.epoch, table.concat(answers, '\n') }
