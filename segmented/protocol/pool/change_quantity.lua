#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/giving_back.lua
-- numbers 2:1:1000000000
-- Give back some units of a reserved order that nobody works on. It is in the ledger as an order that is cancelled and
-- reserved again, with fewer units than it asked for. Safe to run twice.
-- ARGV     1 order_id   2 quantity that the order keeps
-- answers  {"unknown"}   {"queued"}
--          {"settled", line}   decided before; the line is as `settle` answers it
--          {"in_hand"}    a holder, a worker or a cart has it
--          {"fewer", quantity}   it has fewer units than that
--          {"changed", quantity, segment, parts, sequence, hold_until_ms, epoch, replay}
local pool = read_pool()
local id, quantity = ARGV[1], tonumber(ARGV[2])
local raw = binding(redis.call('HGET', ORDERS, id), id)
local hold_until_ms = redis.call('ZSCORE', HOLDS, id) or '0'
if not raw then
  return { read_queued(id) and 'queued' or 'unknown' }
end
local record = parsed(raw)
if record.state ~= 'r' then
  return { 'settled', settled_line(record) }
end
if record.quantity < quantity then
  return { 'fewer', digits(record.quantity) }
end
local is_replay = record.quantity == quantity
if not is_replay then
  if record.home ~= '' or has_lease(record) or redis.call('ZSCORE', OUTBOX, id) then
    return { 'in_hand' }
  end
  local parts, given = split_record(pool, record, quantity)
  read_bought(pool, { record.customer })
  append(pool, 'cancelled', line_of(id, record, NOTED.v))
  pool.reserved = pool.reserved - (record.quantity - quantity)
  record.asked = record.asked ~= '' and record.asked or digits(record.quantity)
  give_units_back(pool, record, parts, given, quantity)
  append(pool, 'reserved', line_of(id, record))
  record.sequence = pool.sequence
  redis.call('HSET', ORDERS, id, packed(record))
  write_pool(pool)
elseif own_change(pool, record.sequence) then
  is_replay = false
end
return { 'changed', digits(quantity), digits(record.segment), record.parts, digits(record.sequence), hold_until_ms,
  pool.epoch, is_replay and '1' or '0' }
