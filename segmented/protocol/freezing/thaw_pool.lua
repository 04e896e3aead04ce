#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1 8
-- Let a frozen pool sell again, in a later epoch, from a number of sold units that is known from outside: from an order
-- database, or from an operator. First, in as many calls as it takes, the reserved orders that the database has decided
-- are ended without units of their own, because those that were sold count in that number. The last call replaces the
-- pool's numbers: what is neither sold nor still reserved is free, spread evenly over the segments. The ledger starts
-- again with a checkpoint of these numbers, and an entry says what happened. Safe to run twice.
-- ARGV     1 epoch (later than the pool's)   2 stocked ("": as the pool has it)   3 sold
--          4 stored ("1": the order database is in this epoch)   5 is_last ("1")
--          6 reserved, as the pool has it, and   7 as its orders have it, which replaces it ("": the pool's is right)
--          8 how many notes of other shards follow, for each: "sent" (to this shard) or "received" (from it), number of
--            the other shard, number of its last transfer, units of all, its epoch. Of a gated shard they are the order
--            database's, one of each kind for every other shard, and replace the shard's own: see below
--          and on: for each decided order, at most 1,000: order_id, "c" or "x"; "r": it is still reserved, and its hold
--            starts again if it has none
-- answers  {"sells"}         it is not frozen
--          {"gated"}         its order database must be in the epoch first
--          {"not_gated"}     it has no order database
--          {"late", epoch}   it, or its ledger, is in this epoch or a later one already
--          {"too_many", stocked, reserved}   sold and reserved are more than were stocked
--          {"counted_before"}   the pool's number of reserved units is not the given one: another call ended orders
--          {"ending"}        the orders are ended, and more may follow
--          {"thawed", state, replay}
local LONGEST = 999999999999999 -- a number of 16 digits was written from outside
local HOLD_MS = 600000 -- of a hold that was lost
local PINNED_UNTIL = '253402300799000' -- the hold of an order of a cart
local epoch, sold, is_stored, is_last = tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5] == '1'
local reserved_found, reserved_counted = tonumber(ARGV[6]), tonumber(ARGV[7])
local pool = known_numbers()
freeze_if_behind(pool)
if not pool.frozen then
  if tonumber(pool.epoch) == epoch then
    return { 'thawed', pool_state(), '1' }
  end
  return { 'sells' }
end
if pool.is_gated ~= is_stored then
  return { pool.is_gated and 'gated' or 'not_gated' }
end

-- 1. what can be read. All is checked before the first write, because a script does not roll back.
local found = redis.call('HMGET', META, 'sent', 'received', 'lost')
local sent, received, lost_before = whole(found[1] or '0'), whole(found[2] or '0'), whole(found[3] or '0')
local function check_number(number, lowest, highest)
  if not number or number < lowest or number > highest then
    error(DRIFTED)
  end
end
for _, name in ipairs({ 'epoch', 'sequence', 'opened', 'restocked', 'withdrawn', 'reserved', 'confirmed' }) do
  check_number(tonumber(pool[name]), -LONGEST, LONGEST)
end
check_number(sent, 0, LONGEST)
check_number(received, 0, LONGEST)
check_number(lost_before, -LONGEST, LONGEST)
-- The ledger refuses an id that is not above its last one. That may be of an epoch that the numbers have forgotten.
local ledger_epoch = last_entry() or 0
if epoch <= math.max(tonumber(pool.epoch), tonumber(string.match(pool.frozen, '^%d+'))) then
  return { 'late', pool.epoch }
end
if epoch <= ledger_epoch or epoch > LONGEST then
  return { 'late', digits(math.max(ledger_epoch, tonumber(pool.epoch))) }
end

-- Another shard knows of units that this one forgot to have sent, or to have received: it takes them over. Their notes
-- only grow, so the larger number is the right one.
local noted, dropped = {}, {}
local function note_of(field)
  local number, count = string.match(redis.call('HGET', TRANSFERS, field) or '0 0', '^(%d+) (%d+)$')
  check_number(tonumber(number), 0, LONGEST)
  check_number(tonumber(count), 0, LONGEST)
  return tonumber(number), tonumber(count)
end
local function note(field, text)
  noted[#noted + 1], noted[#noted + 2] = field, text
end
-- An order database's stock has the units of the transfers that it has stored, and of no other. So its notes replace
-- those of the shard: a transfer that it has not stored has never happened, and one that it has stored stays away until
-- the other shard has it.
local gated_until = is_stored and 8 + 5 * tonumber(ARGV[8]) or 8
if gated_until > 8 then
  sent, received = 0, 0
end
for index = 9, gated_until, 5 do
  local kind, other, count = ARGV[index], ARGV[index + 1], tonumber(ARGV[index + 3])
  local own = (kind == 'sent' and 'received:' or 'sent:') .. other
  local last, known = note_of(own)
  if kind == 'sent' then
    received = received + count
  else
    sent = sent + count
  end
  if count ~= known then
    note(own, digits(last + 1) .. ' ' .. digits(count))
    local _, away = note_of('away:' .. other)
    if kind == 'received' and away + count > known then
      note('away:' .. other, digits(last + 1) .. ' ' .. digits(away + count - known))
    elseif kind == 'received' then
      table.insert(dropped, 'away:' .. other)
    end
  end
end
for index = gated_until + 1, 8 + 5 * tonumber(ARGV[8]), 5 do
  local kind, other, count = ARGV[index], ARGV[index + 1], tonumber(ARGV[index + 3])
  local own = (kind == 'sent' and 'received:' or 'sent:') .. other
  local last, known = note_of(own)
  if count > known then
    note(own, digits(math.max(last, tonumber(ARGV[index + 2]))) .. ' ' .. digits(count))
    if kind == 'sent' then
      received = received + count - known
    else
      sent = sent + count - known
      dropped[#dropped + 1] = 'away:' .. other
    end
  end
  if kind == 'sent' then
    local before = whole(redis.call('HGET', TRANSFERS, 'epoch:' .. other) or '0') or error(DRIFTED)
    note('epoch:' .. other, digits(math.max(before, tonumber(ARGV[index + 4]))))
  end
end
if is_last and reserved_counted then
  if reserved_found ~= pool.reserved then
    return { 'counted_before' }
  end
  pool.reserved = reserved_counted
elseif is_last then
  check_number(pool.reserved, 0, LONGEST)
end
if order_count == 0 then -- none of its units has a record any more
  pool.reserved, pool.confirmed, lost_before = 0, 0, 0
end

-- 2. the decided orders
local ids, letters, is_named = {}, {}, {}
for index = 9 + 5 * tonumber(ARGV[8]), #ARGV, 2 do
  local id = ARGV[index]
  if not is_named[id] then
    ids[#ids + 1], letters[#letters + 1], is_named[id] = id, ARGV[index + 1], true
  end
end
if #ids > 0 then
  redis.call('HLEN', DEAD)
end
local raws, fields, ended, held = #ids > 0 and redis.call('HMGET', ORDERS, unpack(ids)) or {}, {}, {}, {}
for index, id in ipairs(ids) do
  local record = raws[index] and parsed(raws[index])
  if record and record.state == 'r' and letters[index] == 'r' then
    local has_no_end = record.home ~= '' and PINNED_UNTIL or redis.call('ZSCORE', OUTBOX, id) and SUBMITTED_UNTIL
    held[#held + 1], held[#held + 2] = has_no_end or digits(now_ms + HOLD_MS), id
  elseif record and record.state == 'r' then
    pool.reserved = pool.reserved - record.quantity
    if letters[index] ~= 'x' then
      pool.confirmed = pool.confirmed + record.quantity
    else
      add_bought(pool, record.customer, -record.quantity)
    end
    record.state = letters[index]
    ended[#ended + 1] = id
    fields[#fields + 1], fields[#fields + 2] = id, packed(record)
  end
end

-- 3. the numbers
-- sold units that the pool has no orders for: their changes are lost
local lost = sold - pool.confirmed + lost_before
local kept = pool.opened + pool.restocked - pool.withdrawn + received - sent -- with what other shards know
local stocked = tonumber(ARGV[2]) or kept
local available = stocked - sold - pool.reserved
if is_last and available < 0 then
  return { 'too_many', digits(stocked), digits(pool.reserved) }
end

local count, parts = pool.segment_count, is_last and even_parts(available, pool.segment_count)
local last, seen, start = pool.sequence, pool.frozen, nil
local from = pool.epoch .. '-' .. digits(last)

-- all is checked: write, first what may still fail
if is_last then
  pool.opened = pool.opened + stocked - kept
  pool.epoch = ARGV[1]
  pool.available, pool.was_available, pool.confirmed = available, -1, sold
  pool.sequence = math.max(pool.sequence, tonumber(string.match(seen, '%d+$')))
  local numbers = table.concat({ digits(count), digits(pool.opened), digits(pool.restocked), digits(pool.withdrawn),
    digits(sent), digits(received), digits(pool.reserved), digits(sold), pool.is_closed and '1' or '0', pool.chain }, ' ')
  append(pool, 'checkpoint', pool_line('', available, parts, numbers))
  start = digits(pool.sequence)
end
if #ended > 0 then
  redis.call('HSET', ORDERS, unpack(fields))
  redis.call('ZREM', HOLDS, unpack(ended))
  has_outbox, has_entries = true, true
  leave_outbox(ended, 'confirmed')
  redis.call('HSET', META, 'reserved', digits(pool.reserved), 'confirmed', digits(pool.confirmed))
end
if #held > 0 then
  redis.call('ZADD', HOLDS, 'NX', unpack(held))
end
if not is_last then
  write_bought()
  return { 'ending' }
end
if #noted > 0 then
  redis.call('HSET', TRANSFERS, unpack(noted))
end
redis.call('HSET', META, 'sent', digits(sent), 'received', digits(received))
if #dropped > 0 then
  redis.call('HDEL', TRANSFERS, unpack(dropped))
end
if order_count == 0 then
  redis.call('DEL', HOLDS)
end
redis.call('DEL', STOCK)
write_stock(available, count)
append(pool, 'thawed', pool_line('', sold, '', 'at ' .. from .. ' seen ' .. seen .. ' lost ' .. digits(lost)))
redis.call('HSET', META, 'epoch', pool.epoch, 'opened', digits(pool.opened), 'lost', digits(lost), 'ledger_start', start, 'checkpoints', start)
if pool.is_gated then
  redis.call('HSET', META, 'server', '') -- to be verified: the database may be in a later epoch by now
end
write_pool(pool)
note_server(pool, last)
redis.call('HDEL', META, 'frozen')
redis.pcall('PUBLISH', FREED, 'thawed')
return { 'thawed', pool_state(), '0' }
