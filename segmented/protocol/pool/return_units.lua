#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/giving_back.lua
-- numbers 2:1:1000000000 4?
-- Give back units of a confirmed order, once for each return id. An order that has none left is no longer sold: its record
-- is a cancelled one without units. In the ledger it is `returned`: a line with what the order keeps, and a note of the
-- units by segment that were given back, and the return id. Units of an order that the pool has no record of, because its
-- order database sold it in an earlier epoch or the pool forgot it, are those that meta counts as lost: a line without a
-- segment, with the units that were given back. A pool that was opened again does not count them, because its stock began
-- without them: they are restocked.
-- ARGV     1 order_id   2 units   3 return_id   4 epoch (in which the order database of a gated pool has stored the
--            return; "": none)   5 customer_id ("": none; as the order database has it)
-- answers  {"unknown"}   {"queued"}   {"gated"}   the order database must store it first
--          {"late", epoch}   stored in another epoch, whose numbers may include it
--          {"mismatch"}   the id was used for another change
--          {"reserved"}   the order is not sold yet   {"in_cart"}   it is a line of a cart
--          {"settled", line}   it is not sold; the line is as `settle` answers it
--          {"fewer", quantity}   it has fewer units
--          {"returned", quantity (that the order keeps), sequence, replay, epoch}
local pool = read_pool()
local id, count, return_id, customer = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[5]
check_texts({ id, return_id, customer })
if pool.is_gated and ARGV[4] == '' then
  return { 'gated' }
end
if ARGV[4] ~= '' and ARGV[4] ~= pool.epoch then
  return { 'late', pool.epoch }
end
local raw = binding(redis.call('HGET', ORDERS, id), id)
local record = raw and parsed(raw)
local content = 'returned ' .. digits(count) .. ' '
local before = redis.call('HGET', CHANGES, return_id)
if before then
  local sequence, order_id = string.match(before, '^' .. content .. '(%d+) (.*)$')
  if pool.is_gated and not order_id then -- the order database has no restock of this id, only the return
    sequence, order_id = string.match(before, '^restocked ' .. digits(count) .. ' (%d+)$'), id
  end
  if not sequence or order_id ~= id then
    return { 'mismatch' }
  end
  local replay = own_change(pool, tonumber(sequence)) and '0' or '1'
  return { 'returned', digits(record and record.quantity or 0), sequence, replay, pool.epoch }
end

local is_sold, is_counted = record and record.state == 'c', true
local lost = whole(redis.call('HGET', META, 'lost') or '0')
local parts, given, line
if is_sold then
  if record.home ~= '' then
    return { 'in_cart' }
  end
  if record.quantity < count then
    return { 'fewer', digits(record.quantity) }
  end
  parts, given = split_record(pool, record, record.quantity - count)
  read_bought(pool, { record.customer })
elseif pool.is_gated and (not record or record.state == 's') then
  is_counted = lost and lost >= count
  if not lost or pool.opened + pool.restocked + count > EXACT_MAX then
    error(DRIFTED)
  end
  read_bought(pool, { customer })
  if pool.customer_limit == 0 or customer ~= '' and bought_by(customer) < count then
    customer = '' -- a rebuilt pool has forgotten what its customers had bought before
  end
  parts = spread(pool, count)
elseif not record then
  return { read_queued(id) and 'queued' or 'unknown' }
elseif record.state == 'r' then
  return { 'reserved' }
else
  return { 'settled', settled_line(record) }
end

pool.confirmed = pool.confirmed - (is_counted and count or 0)
if is_sold then
  local listed = {}
  for index = 1, #given, 2 do
    listed[#listed + 1] = digits(given[index]) .. ':' .. digits(given[index + 1])
  end
  record.asked = record.asked ~= '' and record.asked or digits(record.quantity)
  give_units_back(pool, record, parts, given, record.quantity - count)
  line = line_of(id, record, table.concat(listed, ',') .. ' ' .. return_id)
elseif is_counted then
  pool.available = pool.available + count
  add_bought(pool, customer, -count)
  line = table.concat({ id, digits(count), '', parts, customer, '', return_id }, '\t')
else
  pool.available, pool.restocked = pool.available + count, pool.restocked + count
  line = pool_line(return_id, count, parts, '')
end
append(pool, is_counted and 'returned' or 'restocked', line)
local note = content .. digits(pool.sequence) .. ' ' .. id
if is_sold then
  record.state, record.sequence = record.quantity > 0 and 'c' or 'x', pool.sequence
  redis.call('HSET', ORDERS, id, packed(record))
elseif is_counted then
  redis.call('HSET', META, 'lost', digits(lost - count))
else
  redis.call('HSET', META, 'restocked', digits(pool.restocked))
  note = 'restocked ' .. digits(count) .. ' ' .. digits(pool.sequence)
end
redis.call('HSET', CHANGES, return_id, note)
write_pool(pool)
return { 'returned', digits(is_sold and record.quantity or 0), digits(pool.sequence), '0', pool.epoch }
