-- uses shared/clock.lua
-- uses shared/call.lua
-- uses shared/seen.lua
-- Shared by every pool script: names for KEYS, the pool's numbers, records, the ledger, units, and ending reservations.
-- KEYS  1 meta (hash)   2 stock (hash: segment -> units)   3 free (zset: segment -> ms at which it is free; a hint)
--       4 orders (hash: order id -> record)   5 holds (zset: order id -> ms)   6 ledger (stream)
--       7 lock (prefix: <lock>:<segment> is a string with PX that holds the holder id; <lock>:line is the line of the
--         processes that wait for a segment: shared/line.lua)   8 freed (channel)
--       9 customers (hash: customer id -> units; only with a limit)   10 changes (hash: change id -> its result)
--       11 transfers (hash: sent:, away: or received:<shard> -> number and units; only of a shard of several)
--       12 outbox (zset: id of a submitted, unfinished order -> ms at which it is published again)
--       13 entries (hash: order id -> entry; of submitted orders that were begun or published again, or are queued)
--       14 dead (hash: order id -> begun, ms, reason: of orders that are no longer published)
-- A record is state, quantity, segment, sequence, parts, customer, asked, holder, fence, home (of the cart that pinned
-- it), separated by tabs, none at the end. (`..` may append numbers of up to 14 digits; longer ones need `digits`.) The
-- state is r(eserved), c(onfirmed), x (cancelled), v (cancelled, and the id can be reserved or granted again), s (cancelled
-- here, because an earlier epoch sold it: callers learn that it is confirmed), e(xpired) or f (refused). `parts` is empty if all units are from the segment, otherwise "segment:units,..."; `asked` is empty if
-- all units asked for were taken.
-- An entry is begun, published, quantity, customer, reason, until, worker in the same format: how often a worker began
-- the order without finishing it, how often it was published again since, units and customer of a queued order, why it
-- was put off last, and which worker has it until which ms. Behind them are the call that submitted it, and its trace.
-- The line of an order in a ledger entry is order id, quantity, segment, parts, customer, fence, note, separated by tabs.
-- A pool that is behind what the caller's process has seen (shared/seen.lua) has lost changes: it is frozen at once (meta:
-- frozen is the epoch and sequence that were seen), and the script fails with FROZEN. So is a pool that lacks one of its
-- keys, at its own numbers: FROZEN names the key. A gated pool that was last verified
-- against its order database on another server (meta: server) may have lost what nobody has seen: UNVERIFIED. So is one that
-- was just thawed (meta: server is empty), because a later rebuild may have begun meanwhile.
-- meta: servers are the last servers of the pool, oldest first, each with the sequence number at which it took over:
-- "id:number id:number". So a change is missed that was seen on one server, and is not in what the next one began with.
-- A pool that is being archived (meta: archive is "exporting <server>", then "removing <digest> <target>") answers reads
-- and no more: ARCHIVED. Afterwards meta has this field alone for a while: "archived <epoch> <ms> <digest> <target>".
local META, STOCK, FREE, ORDERS, HOLDS, LEDGER, LOCK, FREED, CUSTOMERS, CHANGES, TRANSFERS, OUTBOX, ENTRIES, DEAD =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13],
  KEYS[14]
local SERVERS_MAX = 8
local DUE_MAX = 16
local DUE_IN_ALL_MAX = 160
local MANY = 1000
local RUN = 64 -- changes of a pool in which submitted orders begin at the same segment
local WINDOW = 32
local PAGE_BYTES = 262144 -- of ledger entries or records after which a reply has no further one
local ENTRIES_AT_ONCE = 8
local CHUNK = 100 -- records read at once: each may have thousands of parts
local WORK_MAX = 1000 -- after which a call begins no further order; an order that is not plain is 2, each of its parts 1
local ORDER_WORK = 2
local OWN_WORK = 25 -- of reading one change of the ledger, which may have a thousand lines
local SUBMITTED_UNTIL = '253402300798000' -- the hold of a submitted order, which does not expire
local EXACT_MAX = 9007199254740992 -- larger numbers are not exact in a script
local NOTED = { -- cancelled orders whose record says more, and whose line in the ledger has a note
  v = 'unheard', -- its caller was gone
  s = 'sold before', -- in an earlier epoch, by the order database
}
local NO_DIGEST = '0000000000000000'
local LETTERS = { reserved = 'r', confirmed = 'c', cancelled = 'x', expired = 'e', refused = 'f' }

-- A script does not roll back: a key of the wrong type must fail here, not at the fifth write. (meta is read before any
-- write anyway.)
local stock_count = redis.call('HLEN', STOCK)
redis.call('ZCARD', FREE)
local order_count = redis.call('HLEN', ORDERS)
local hold_count = redis.call('ZCARD', HOLDS)
local entry_count = redis.call('XLEN', LEDGER)
local has_outbox = redis.call('ZCARD', OUTBOX) > 0
local has_entries = redis.call('HLEN', ENTRIES) > 0

local numbers = {} -- text -> its number, or false

-- Fields with tabs between them, without the empty ones at the end.
local function joined(fields)
  local last = #fields
  while last > 1 and fields[last] == '' do
    last = last - 1
  end
  return table.concat(fields, '\t', 1, last)
end

-- A number that another program may have written; nil if it is not an integer, or too large to be exact.
local function whole(text)
  local found = numbers[text]
  if found == nil then
    found = string.match(text, '^%-?%d+$') and tonumber(text) or false
    found = found and math.abs(found) < EXACT_MAX and found
    numbers[text] = found
  end
  return found or nil
end

-- Any client of the server may send a call: what an order asks for, and how many a call has, is checked before a write.
local function check_quantity(quantity)
  if type(quantity) ~= 'number' or quantity < 1 or quantity > 1000000000 or quantity % 1 ~= 0 then
    error({ err = 'INVALID quantity: a whole number from 1 to 1000000000 is needed' })
  end
end

-- A number in a list of ids would be the same field as its text, and another key here. With `are_lines`, no text of the
-- list has a tab or a newline.
local function check_texts(texts_given, are_lines)
  for index = 1, #texts_given do
    local one = texts_given[index]
    if type(one) ~= 'string' or not are_lines and string.find(one, '[\t\n]') then
      error({ err = 'INVALID id: a text without tabs and newlines is needed' })
    end
  end
end

-- The ids in a JSON list, checked. If the list itself has no tab, no newline and no escape, no id has one: to look once at
-- the list takes less time than to look at each id.
local function texts_in(list)
  local found = cjson.decode(list)
  check_texts(found, not (string.find(list, '\t', 1, true) or string.find(list, '\n', 1, true)
    or string.find(list, '\\', 1, true)))
  return found
end

local function check_one_of(kinds, kind)
  if not kinds[kind] then
    error({ err = 'INVALID call: this state or kind is none of those that it may name' })
  end
end

local function check_count(count)
  if count > MANY then
    error({ err = 'INVALID call: it has at most 1000 orders' })
  end
end

-- The epoch and the sequence number in an entry's id; nil if another program wrote something else.
local function numbers_in(id)
  local epoch, sequence = string.match(id, '^(%d+)%-(%d+)$')
  return epoch and #epoch < 16 and #sequence < 16 and { tonumber(epoch), tonumber(sequence) } or nil
end

-- Call `act` with the first place of each chunk of `count` places from 0, and the last one.
local function each_chunk(count, size, act)
  for first = 0, count - 1, size do
    act(first, math.min(first + size, count) - 1)
  end
end

-- How the keys are laid out, which `layout` of meta says. A pool of another layout is not touched: this release would
-- read it wrongly, so the caller must be upgraded. A later release raises the number for each pool with a field that
-- guards money and that this release would ignore.
local LAYOUT = '1'

local function check_layout(found)
  if found and found ~= LAYOUT then
    error({ err = 'LAYOUT ' .. (string.match(found, '^%w+$') or '?') .. ' ' .. LAYOUT })
  end
end

local MISSING = { err = 'MISSING' } -- the pool is not open
local DRIFTED = { err = 'DRIFTED a number of the pool is missing or cannot be read: it was written to from outside' }

-- The state that a frozen pool has lost, from meta. If that cannot be read, the pool is frozen all the same: at its own numbers.
local function frozen_at(pool, said)
  return numbers_in(said) and said or pool.epoch .. '-' .. digits(pool.sequence)
end

local tombstone -- what an archived pool has left of itself, once read_numbers has found no pool

-- The pool's numbers, nil if it has none. They are changed in this table and written by write_pool. Fails before any
-- write if one of them cannot be read.
local function read_numbers()
  local found = redis.call('HMGET', META, 'epoch', 'segment_count', 'gated', 'sequence', 'available', 'reserved',
    'confirmed', 'fence', 'cursor', 'chain', 'customer_limit', 'closed', 'opened', 'restocked', 'withdrawn', 'increases',
    'frozen', 'layout', 'server', 'profile', 'servers', 'archive', 'line')
  check_layout(found[18])
  if not found[1] then
    tombstone = found[22]
    return nil
  end
  for index = 1, 15 do
    if index ~= 10 and not (found[index] and whole(found[index])) then
      error(DRIFTED)
    end
  end
  if numbers[found[1]] < 1 or numbers[found[2]] < 1 or numbers[found[2]] > 4096 or numbers[found[4]] < 0 or not found[10] then
    error(DRIFTED)
  end
  local pool = { epoch = found[1], segment_count = tonumber(found[2]), is_gated = found[3] == '1',
    sequence = tonumber(found[4]), available = tonumber(found[5]), was_available = tonumber(found[5]), reserved = tonumber(found[6]),
    confirmed = tonumber(found[7]), fence = tonumber(found[8]), cursor = tonumber(found[9]), chain = found[10],
    customer_limit = tonumber(found[11]), is_closed = found[12] == '1', opened = tonumber(found[13]),
    restocked = tonumber(found[14]), withdrawn = tonumber(found[15]),
    increases = whole(found[16] or '0'),
    server = found[19], profile = found[20], servers = found[21] or '', archive = found[22],
    line = found[23] }
  pool.frozen = found[17] and frozen_at(pool, found[17])
  if pool.customer_limit > 0 then
    redis.call('HLEN', CUSTOMERS)
  end
  return pool
end

-- The same. Fails if the pool has no keys.
local function known_numbers()
  return read_numbers() or error(MISSING)
end

-- Return whether a pool lacks the change that the process has seen. If it was seen on an earlier server, other changes
-- may have its number: it is there if the next server began with it. A pool that has all its servers, and not that one, has
-- lost all that happened there.
local function lacks_seen(epoch, sequence, servers)
  local behind, seen = tonumber(seen_epoch) - epoch, tonumber(seen_sequence)
  if behind ~= 0 or sequence < seen then
    return behind >= 0
  end
  if seen_server == '' or this_server == '?' then
    return false
  end
  local is_known, ended, count, first = false, nil, 0, nil
  for server, number in string.gmatch(servers, '(%w+):(%d+)') do
    if server == seen_server then
      is_known, ended = true, nil
    else
      ended = ended or is_known and tonumber(number)
    end
    count, first = count + 1, first or tonumber(number)
  end
  if not is_known then
    return count < SERVERS_MAX or seen > first
  end
  return seen > (ended or sequence)
end

-- The key that is gone although these numbers of the pool say that it has content: somebody deleted it, or the server
-- lost it. Otherwise nil. The sizes were read for their types. All segments are in the stock, and the ledger is never
-- trimmed empty. A pool may have sold units without a record, which meta counts as lost; one that is archived is removed
-- key by key.
local function missing_key(reserved, confirmed)
  local key = stock_count == 0 and 'stock' or entry_count == 0 and 'ledger'
    or order_count == 0 and (reserved > 0 or confirmed > 0) and 'orders' or hold_count == 0 and reserved > 0 and 'holds'
  if not key then
    return nil
  end
  local found = redis.call('HMGET', META, 'archive', 'lost')
  local without_record = whole(found[2] or '0') or confirmed
  if found[1] or key == 'orders' and reserved <= 0 and confirmed <= without_record then
    return nil
  end
  return key
end

-- Freeze a pool that lacks changes which a process has seen, or one of its keys: no order is answered from what is left
-- of it. Its waiters are woken, so that they learn of it. A script that may not write only takes it for frozen.
local function freeze_if_behind(pool)
  if pool.frozen then
    return
  end
  if lacks_seen(tonumber(pool.epoch), pool.sequence, pool.servers) then
    pool.frozen = seen_epoch .. '-' .. seen_sequence
  elseif missing_key(pool.reserved, pool.confirmed) then
    pool.frozen = pool.epoch .. '-' .. digits(pool.sequence)
  else
    return
  end
  redis.pcall('HSET', META, 'frozen', pool.frozen)
  redis.pcall('PUBLISH', FREED, 'frozen')
end

-- Note a new server with the pool's `last` change before the server changed anything. A script that may not write notes
-- nothing, so what it answers is not remembered as seen on this server.
local function note_server(pool, last)
  if this_server == '?' or string.match(pool.servers, '(%w+):%d+$') == this_server then
    return
  end
  local kept = {}
  for server in string.gmatch(pool.servers, '%w+:%d+') do
    kept[#kept + 1] = server
  end
  kept[#kept + 1] = this_server .. ':' .. digits(last)
  pool.servers = table.concat(kept, ' ', math.max(1, #kept - SERVERS_MAX + 1))
  redis.pcall('HSET', META, 'servers', pool.servers)
end

local function check_seen(pool)
  freeze_if_behind(pool)
  if pool.frozen then
    local gone = missing_key(pool.reserved, pool.confirmed) or '-'
    error({ err = 'FROZEN ' .. pool.epoch .. '-' .. digits(pool.sequence) .. ' ' .. pool.frozen .. ' ' .. gone
      .. (pool.is_gated and ' gated' or ' ungated') })
  end
  if not pool.is_gated or pool.server == this_server then
    note_server(pool, pool.sequence)
  end
end

-- The same for every operation but opening, verifying, freezing, thawing and archiving. Fails if the pool is frozen, is
-- being archived or was, or must be verified first, if the caller does not know its profile, and if it has no keys.
local function read_pool()
  local pool = read_numbers()
  if pool then
    check_seen(pool)
    if pool.archive then
      error({ err = 'ARCHIVED ' .. pool.archive })
    end
    if pool.is_gated and (pool.server == '' or pool.server ~= this_server and this_server ~= '?') then
      error({ err = 'UNVERIFIED' })
    end
    check_profile(META, pool.profile, pool.is_gated)
  elseif tombstone then
    error({ err = 'ARCHIVED ' .. tombstone })
  elseif tonumber(seen_epoch) > 0 then
    error({ err = 'VANISHED ' .. seen_epoch })
  else
    error(MISSING)
  end
  return pool
end

-- For scripts that read without read_pool: fails if a note of its archive is all that is left of the pool.
local function check_archived()
  local found = redis.call('HMGET', META, 'epoch', 'archive')
  if found[2] and not found[1] then
    error({ err = 'ARCHIVED ' .. found[2] })
  end
end

-- --- units of segments: read once, changed here, written by write_pool ---

local units, changed, unreadable = {}, {}, {}
local work = 0 -- of this call so far

-- Units that are not an exact integer were written from outside: they count as 0 and are left alone.
local function note_units(segment, text)
  local found = whole(text or '0')
  unreadable[segment] = not found or nil
  units[segment] = found or 0
end

local function units_of(segment)
  if not units[segment] then
    note_units(segment, redis.call('HGET', STOCK, segment))
  end
  return units[segment]
end

-- Read the units of many segments, none of them twice.
local function read_units(segments)
  each_chunk(#segments, MANY, function(first, last)
    local found = redis.call('HMGET', STOCK, unpack(segments, first + 1, last + 1))
    for index = 1, #found do
      note_units(segments[first + index], found[index])
    end
  end)
end

local function add_units(segment, count)
  units[segment] = units_of(segment) + count
  changed[segment] = (changed[segment] or 0) + count
end

-- The token of a new grant; higher than `above`, which a resource has accepted.
local function next_fence(pool, above)
  pool.fence = next_token(math.max(pool.fence, above), now_us)
  return digits(pool.fence)
end

-- Take units: first from `start`, then from any other segment, locked or not, beginning where some were found last.
-- Returns the first segment that gave some, and the parts. The caller has checked that enough are free: if the stock
-- disagrees because it was changed from outside, takes nothing and returns nil.
local gathered_max = math.huge -- units of all segments, once a walk has found too few
local function gather(pool, start, quantity)
  local own = units_of(start)
  if own >= quantity then
    add_units(start, -quantity)
    return start, ''
  end
  if quantity > gathered_max then
    return nil
  end
  local parts, froms, takes, number, needed = {}, {}, {}, 0, quantity
  local function take_from(segment)
    local taken = units[segment]
    if taken > 0 then
      taken = taken < needed and taken or needed
      number, needed = number + 1, needed - taken
      froms[number], takes[number] = segment, taken
      parts[number] = segment .. ':' .. digits(taken)
      units[segment], changed[segment] = units[segment] - taken, (changed[segment] or 0) - taken
    end
  end
  take_from(start)
  local count, window = pool.segment_count, WINDOW
  for offset = 0, count - 1 do
    local segment = (pool.cursor + offset) % count
    if not units[segment] then
      local asked = {}
      for later = offset, math.min(offset + window, count) - 1 do
        local other = (pool.cursor + later) % count
        if not units[other] then
          asked[#asked + 1] = other
        end
      end
      read_units(asked)
      window = math.min(2 * window, MANY)
    end
    take_from(segment)
    if needed == 0 then
      pool.cursor = segment
      if number == 1 then
        return froms[1], ''
      end
      work = work + number
      return froms[1], table.concat(parts, ',')
    end
  end
  for index = 1, number do
    add_units(froms[index], takes[index])
  end
  gathered_max = quantity - needed
  return nil
end

-- The same for a change without an order, which has written nothing yet: returns the parts, or fails.
local function gather_parts(pool, quantity)
  local first, parts = gather(pool, pool.cursor, quantity)
  if not first then
    error(DRIFTED)
  end
  return parts ~= '' and parts or digits(first) .. ':' .. digits(quantity)
end

-- Call `act` with each segment of a record and its units; a queued order has none.
local function each_part(record, act)
  if record.parts == '' then
    if record.segment then
      act(record.segment, record.quantity)
    end
    return
  end
  if not record.listed then
    record.listed = {}
    for segment, count in string.gmatch(record.parts, '(%d+):(%d+)') do
      record.listed[#record.listed + 1], record.listed[#record.listed + 2] = tonumber(segment), tonumber(count)
    end
  end
  for index = 1, #record.listed, 2 do
    act(record.listed[index], record.listed[index + 1])
  end
end

-- Count a record's parts as work.
local function note_parts(record)
  if record.parts ~= '' then
    work = work + select(2, string.gsub(record.parts, ':', ':'))
  end
end

-- Count a record as work, with its parts.
local function note_work(record)
  work = work + ORDER_WORK
  note_parts(record)
end

-- Return whether the segments of a record can take its units back.
local function can_give_back(pool, record)
  if record.parts == '' then
    local segment = record.segment and record.segment % pool.segment_count
    return not segment or units_of(segment) and not unreadable[segment]
  end
  local can, asked = true, {}
  each_part(record, function(segment)
    segment = segment % pool.segment_count
    if not units[segment] then
      asked[#asked + 1] = segment
    end
  end)
  read_units(asked)
  if next(unreadable) then
    each_part(record, function(segment)
      can = can and not unreadable[segment % pool.segment_count]
    end)
  end
  return can
end

-- --- customers, in a pool that limits them ---

local bought, bought_changed = {}, {}

local function note_bought(customer, text)
  bought[customer] = whole(text or '0') or error(DRIFTED)
  return bought[customer]
end

local function bought_by(customer)
  return bought[customer] or note_bought(customer, redis.call('HGET', CUSTOMERS, customer))
end

-- Read the units of many customers at once.
local function read_bought(pool, customers)
  local asked, is_asked = {}, {}
  for _, customer in ipairs(pool.customer_limit > 0 and customers or {}) do
    if customer ~= '' and not bought[customer] and not is_asked[customer] then
      asked[#asked + 1], is_asked[customer] = customer, true
    end
  end
  each_chunk(#asked, MANY, function(first, last)
    local found = redis.call('HMGET', CUSTOMERS, unpack(asked, first + 1, last + 1))
    for index = 1, #found do
      note_bought(asked[first + index], found[index])
    end
  end)
end

local function add_bought(pool, customer, count)
  if pool.customer_limit > 0 and customer ~= '' then
    bought[customer] = bought_by(customer) + count
    bought_changed[customer] = true
  end
end

-- --- records and the ledger ---

-- The record in a text, or nil if another program has written something else, or a number that no order can have.
local function readable(raw)
  local state, quantity, segment, sequence, rest = string.match(raw, '^(%l)\t(%d+)\t(%d*)\t(%d+)(.*)$')
  if not state or #quantity > 15 or #segment > 4 or #sequence > 15 then
    return nil
  end
  local record = { state = state, quantity = tonumber(quantity), segment = tonumber(segment),
    sequence = tonumber(sequence), parts = '', customer = '', asked = '', holder = '', fence = '', home = '' }
  if rest ~= '' then
    record.parts, record.customer, record.asked, record.holder, record.fence, record.home =
      string.match(rest, '^\t([%d:,]*)\t?([^\t]*)\t?(%d*)\t?([^\t]*)\t?(%d*)\t?([^\t]*)$')
    if not record.parts or #record.asked > 15 or #record.fence > 16 or record.holder ~= '' and record.fence == '' then
      return nil
    end
  end
  if not record.segment and (state == 'r' or state == 'c') and record.quantity > 0 then
    return nil
  end
  return record
end

-- The same for a script that has written nothing yet: fails.
local function parsed(raw)
  return readable(raw) or error(DRIFTED)
end

-- Returns a function that returns the raw record of the order at a place of `ids`. It reads a chunk when the first of it
-- is asked for.
local function raws_of(ids)
  local found, read_up_to = {}, 0
  return function(index)
    while index > read_up_to do
      local last = math.min(read_up_to + CHUNK, #ids)
      for at, raw in ipairs(redis.call('HMGET', ORDERS, unpack(ids, read_up_to + 1, last))) do
        found[read_up_to + at] = raw
      end
      read_up_to = last
    end
    return found[index]
  end
end

local function read_order(id)
  local raw = redis.call('HGET', ORDERS, id)
  return raw and parsed(raw)
end

-- Returns quantity and customer of an order that no worker has decided yet; nil if there is no such order.
local function read_queued(id)
  local entry = has_entries and redis.call('HGET', ENTRIES, id)
  if entry then
    local quantity, customer = string.match(entry, '^%d+\t%d+\t(%d+)\t?([^\t]*)')
    if quantity then
      return { quantity = tonumber(quantity), customer = customer }
    end
  end
end

local function is_undone(raw)
  return raw and string.sub(raw, 1, 1) == 'v'
end

-- The raw record that answers for an order, or nil: one that was undone is queued again as if for the first time.
local function binding(raw, id)
  return not (is_undone(raw) and read_queued(id)) and raw or nil
end

-- The line that refuses other content under a known id, with the stored quantity, and "=" for the same customer, "?" for
-- another one; nil if the record, or the entry of the outbox, has this content. The customer itself is not in the line:
-- another program may have written it, and the line must be readable.
local function mismatch_of(record, quantity, customer)
  local stored = tonumber(record.asked or '') or record.quantity
  if stored ~= quantity or record.customer ~= customer then
    return joined({ 'mismatch', digits(stored), record.customer == customer and '=' or record.customer == '' and '' or '?' })
  end
end

-- The same for an undecided order that was submitted under this id; nil if there is none.
local function queued_mismatch(id, quantity, customer)
  local queued = read_queued(id)
  return queued and mismatch_of(queued, quantity, customer)
end

-- The record of an order that has no units yet. `request` has what the order asks for, such as an entry of the outbox.
local function new_record(state, request)
  return { state = state, quantity = request.quantity, parts = '', customer = request.customer, asked = '', holder = '',
    fence = '' }
end

-- Most records and lines have only their first fields, and are joined without the rest.
local function is_short(record)
  return record.parts == '' and record.customer == '' and record.asked == '' and record.holder == ''
    and record.fence == ''
end

local function packed(record)
  if record.segment and is_short(record) and (record.home or '') == '' then
    return record.state .. '\t' .. record.quantity .. '\t' .. record.segment .. '\t' .. record.sequence
  end
  return joined({ record.state, digits(record.quantity), record.segment and digits(record.segment) or '',
    digits(record.sequence), record.parts, record.customer, record.asked, record.holder, record.fence,
    record.home or '' })
end

local function line_of(id, record, note)
  if record.segment and not note and is_short(record) then
    return id .. '\t' .. record.quantity .. '\t' .. record.segment
  end
  return joined({ id, digits(record.quantity), record.segment and digits(record.segment) or '', record.parts,
    record.customer, record.fence, note or '' })
end

-- The line of a change without an order. `stock` is what each segment has afterwards, or has received or given.
local function pool_line(id, quantity, stock, note)
  return joined({ id, digits(quantity), '', stock, '', '', note })
end

-- The fields of a hash, or of an entry of the ledger, by name.
local function by_name(fields)
  local found = {}
  for index = 1, #fields, 2 do
    found[fields[index]] = fields[index + 1]
  end
  return found
end

-- Return whether the fields of an entry have the pool's names; another program may have written it.
local function is_own_entry(fields)
  local found = by_name(fields)
  return found.kind and found.at_us and found.lines and found.chain
end

-- Entries after an id, oldest first: up to `limit`, or fewer that reach `bytes_max` bytes together. Reads a few at a time,
-- since one may have a thousand lines. Goes on until one of the pool's own is among them. True if there may be more.
local function entries_after(after_id, up_to_id, limit, bytes_max)
  local entries, bytes, has_own, from = {}, 0, false, '(' .. after_id
  while #entries < limit do
    local count = math.min(limit - #entries, ENTRIES_AT_ONCE)
    local page = redis.call('XRANGE', LEDGER, from, up_to_id, 'COUNT', count)
    for _, entry in ipairs(page) do
      if has_own and bytes >= bytes_max then
        return entries, true
      end
      for _, text in ipairs(entry[2]) do
        bytes = bytes + #text
      end
      has_own = has_own or is_own_entry(entry[2])
      entries[#entries + 1], from = entry, '(' .. entry[1]
    end
    if #page < count then
      return entries, false
    end
  end
  return entries, true
end

local function digest_of(chain, id, kind, at_us, lines)
  return string.sub(redis.sha1hex(table.concat({ chain, id, kind, at_us, lines }, '\n')), 1, 16)
end

-- The id of the ledger's last entry, which stays when it is deleted: no later one has a lower one. "" without a ledger.
local function last_id()
  local about = redis.call('EXISTS', LEDGER) > 0 and redis.call('XINFO', 'STREAM', LEDGER) or {}
  for index = 1, #about, 2 do
    if about[index] == 'last-generated-id' then
      return about[index + 1]
    end
  end
  return ''
end

-- Its epoch and sequence number; nothing without a ledger.
local function last_entry()
  local epoch, sequence = string.match(last_id(), '^(%d+)-(%d+)$')
  return tonumber(epoch), tonumber(sequence)
end

local taken_lock -- of the segment that this call has taken

-- One ledger entry under the next sequence number, chained to the one before by its digest. It is the first write but for
-- the lock of a segment, which is given back if the ledger takes no entry.
local function append(pool, kind, lines)
  pool.sequence = pool.sequence + 1
  local id, at_us = pool.epoch .. '-' .. digits(pool.sequence), digits(now_us)
  pool.chain = digest_of(pool.chain, id, kind, at_us, lines)
  local added = redis.pcall('XADD', LEDGER, id, 'kind', kind, 'at_us', at_us, 'lines', lines, 'chain', pool.chain, 'by',
    this_call)
  if type(added) == 'table' then
    if taken_lock then
      redis.call('DEL', taken_lock)
    end
    error(added)
  end
end

-- The entry of a change if this very call made it, in an attempt whose reply was lost; otherwise nil. Its fields by name.
local own_changes = {} -- sequence number -> entry, or false
local function own_change(pool, sequence)
  local found = is_further and own_changes[sequence]
  if is_further and found == nil then
    work = work + OWN_WORK
    local id = pool.epoch .. '-' .. digits(sequence)
    local entry = redis.call('XRANGE', LEDGER, id, id)[1]
    local fields = by_name(entry and entry[2] or {})
    found = fields.by == this_call and fields
    own_changes[sequence] = found
  end
  return found or nil
end

-- A reader of several shards must see that units arrived in between. A count that another program has made unreadable
-- restarts at a number that was not used before.
local function note_increase(pool)
  pool.increases = (pool.increases or now_ms) + 1
  redis.call('HSET', META, 'increases', digits(pool.increases))
end

-- Write the customers whose units changed.
local function write_bought()
  local gone, has = {}, {}
  for customer in pairs(bought_changed) do
    if bought[customer] > 0 then
      has[#has + 1], has[#has + 2] = customer, digits(bought[customer])
    else
      gone[#gone + 1] = customer
    end
  end
  each_chunk(#has, 2 * MANY, function(first, last)
    redis.call('HSET', CUSTOMERS, unpack(has, first + 1, last + 1))
  end)
  each_chunk(#gone, MANY, function(first, last)
    redis.call('HDEL', CUSTOMERS, unpack(gone, first + 1, last + 1))
  end)
end

-- Write the numbers, and the units and customers that changed.
local function write_pool(pool)
  redis.call('HSET', META, 'sequence', digits(pool.sequence), 'available', digits(pool.available),
    'reserved', digits(pool.reserved), 'confirmed', digits(pool.confirmed), 'fence', digits(pool.fence),
    'cursor', digits(pool.cursor), 'chain', pool.chain)
  if pool.available > pool.was_available then
    note_increase(pool)
  end
  local fields, size = {}, 0
  for segment, count in pairs(changed) do
    if count ~= 0 then
      fields[size + 1], fields[size + 2], size = segment, digits(units[segment]), size + 2
    end
  end
  each_chunk(size, 2 * MANY, function(first, last)
    redis.call('HSET', STOCK, unpack(fields, first + 1, last + 1))
  end)
  write_bought()
end

-- --- segments and their locks ---

local function lock_of(segment)
  return LOCK .. ':' .. digits(segment)
end

-- The holders of the locks in a range of up to 1,000 segments; false where there is none.
local function lock_holders(first, last)
  local locks = {}
  for segment = first, last do
    locks[#locks + 1] = lock_of(segment)
  end
  return redis.call('MGET', unpack(locks))
end

-- A segment that a resize removed is not granted again.
local function note_free_at(pool, segment, at_ms)
  if segment < pool.segment_count then
    redis.call('ZADD', FREE, digits(at_ms), segment)
  end
end

-- Milliseconds until some segment may be free, by the hint; -1 without a hint.
local function free_in_ms()
  local first = redis.call('ZRANGE', FREE, 0, 0, 'WITHSCORES')
  if #first == 0 then
    return '-1'
  end
  return digits(math.max(0, tonumber(first[2]) - now_ms))
end

local holders = {} -- segment -> its holder, or false; the orders of an envelope share one

local function has_lease(record)
  if record.holder == '' then
    return false
  end
  local segment = record.segment
  if holders[segment] == nil then
    -- MGET returns nil for a key of another type and does not fail
    holders[segment] = redis.call('MGET', lock_of(segment))[1]
  end
  return holders[segment] == record.holder
end

local is_quiet = false -- a caller that sends the attempt of a waiter right behind wakes none

local function free_segment(pool, record)
  redis.call('DEL', lock_of(record.segment))
  holders[record.segment] = false
  note_free_at(pool, record.segment, now_ms)
  if not is_quiet then
    redis.pcall('PUBLISH', FREED, record.holder)
  end
end

-- --- the outbox ---

-- Publish these orders again after that many milliseconds, unless they are due sooner already.
local function enter_outbox(ids, after_ms)
  local due, places = digits(now_ms + tonumber(after_ms)), {}
  for index, id in ipairs(ids) do
    places[2 * index - 1], places[2 * index] = due, id
  end
  if #ids > 0 then
    redis.call('ZADD', OUTBOX, 'NX', unpack(places))
  end
end

-- These orders are decided and need no more publishing. An order that expired while it was dead stays in the set, where
-- an operator can find it.
local function leave_outbox(ids, state)
  if has_outbox then
    redis.call('ZREM', OUTBOX, unpack(ids))
  end
  if has_entries then
    redis.call('HDEL', ENTRIES, unpack(ids))
    if state ~= 'expired' then
      redis.pcall('HDEL', DEAD, unpack(ids)) -- it was not read; a key of another type has no dead orders
    end
  end
end

-- --- ending reservations ---

-- Most reservations have only their first fields, so that many raw records are equal: they are read, counted and joined
-- once. `of_many` keeps what they share, nil for other records.
local plain = {}

local function of_many(raw)
  local found = plain[raw]
  if found == nil then
    local quantity, segment = string.match(raw, '^r\t(%d+)\t(%d+)\t%d+$')
    found = quantity and #quantity < 15 and #segment < 5 and { state = 'r', quantity = tonumber(quantity), segment = tonumber(segment), parts = '',
      customer = '', asked = '', holder = '', fence = '', tail = '\t' .. quantity .. '\t' .. segment, count = 0 } or false
    plain[raw] = found
  end
  return found or nil
end

-- Read the units of the segments to which the next plain reservations would go back, together.
local function read_ahead(pool, raws, first, last)
  local asked, is_asked = {}, {}
  for index = first, math.min(first + CHUNK - 1, last) do
    local raw = raws(index)
    local record = raw and of_many(raw)
    local segment = record and record.segment % pool.segment_count
    if segment and not units[segment] and not is_asked[segment] then
      asked[#asked + 1], is_asked[segment] = segment, true
    end
  end
  read_units(asked)
end

local function end_units(pool, state, record, count)
  if state == 'confirmed' then
    pool.confirmed = pool.confirmed + record.quantity * count
  else
    gathered_max = math.huge
    if record.parts == '' and record.segment then
      add_units(record.segment % pool.segment_count, record.quantity * count)
    else
      each_part(record, function(segment, units_there)
        add_units(segment % pool.segment_count, units_there * count)
      end)
    end
    pool.available = pool.available + record.quantity * count
    add_bought(pool, record.customer, -record.quantity * count)
  end
  pool.reserved = pool.reserved - record.quantity * count
end

-- End reservations that the caller has found reserved: `state` is confirmed, cancelled or expired. Records may be shared
-- (`of_many`), but not with `noted`, the letter of a record that says more than `state`. With `keeps[id]` the segment stays
-- with its holder. One ledger entry; the caller calls write_pool.
local function settle(pool, state, ids, records, keeps, noted)
  local lines, fields, shared, freed, customers = {}, {}, {}, {}, {}
  for index, record in ipairs(pool.customer_limit > 0 and state ~= 'confirmed' and records or {}) do
    customers[index] = record.customer
  end
  read_bought(pool, customers)
  for index, id in ipairs(ids) do
    local record = records[index]
    if record.tail then
      if record.count == 0 then
        shared[#shared + 1] = record
      end
      record.count = record.count + 1
      lines[index] = id .. record.tail
    else
      end_units(pool, state, record, 1)
      if not (keeps and keeps[id]) and has_lease(record) then
        freed[#freed + 1] = record
      end
      lines[index] = line_of(id, record, noted and NOTED[noted])
    end
  end
  append(pool, state, table.concat(lines, '\n')) -- the first write: if it fails, nothing has changed
  local letter, sequence = noted or LETTERS[state], pool.sequence
  for _, record in ipairs(shared) do
    end_units(pool, state, record, record.count)
    record.ended, record.state, record.sequence = letter .. record.tail .. '\t' .. sequence, letter, sequence
  end
  for index, id in ipairs(ids) do
    local record = records[index]
    local ended = record.ended
    if not ended then
      record.state, record.sequence = letter, sequence
      ended = packed(record)
    end
    fields[2 * index - 1], fields[2 * index] = id, ended
  end
  redis.call('HSET', ORDERS, unpack(fields))
  redis.call('ZREM', HOLDS, unpack(ids))
  leave_outbox(ids, state)
  for _, record in ipairs(freed) do
    if has_lease(record) then -- an order of the same envelope may have just freed it
      free_segment(pool, record)
    end
  end
  plain = {}
end

local due_so_far, is_nothing_due = 0, false

-- Expire up to `limit` orders whose hold has ended, except those with a live lease; fewer if they have many parts. Return
-- true if more are due.
-- A hold without a reservation, which another program wrote, is dropped: it would block all others forever. One whose
-- record cannot be read stays, until a repair writes the record again.
local function expire_due(pool, limit)
  local due = redis.call('ZRANGE', HOLDS, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit + 1)
  local ids, records, strays, raws = {}, {}, {}, raws_of(due)
  local is_more_due = #due > limit
  for index = 1, math.min(limit, #due) do
    if work >= WORK_MAX then
      is_more_due = true
      break
    end
    if (index - 1) % CHUNK == 0 then
      read_ahead(pool, raws, index, math.min(limit, #due))
    end
    local raw = raws(index)
    local record = raw and of_many(raw)
    if raw and not record then
      record = readable(raw)
      if record then
        note_work(record)
      end
    end
    if not raw or record and record.state ~= 'r' then
      strays[#strays + 1] = due[index]
    elseif record and not has_lease(record) and can_give_back(pool, record) then
      ids[#ids + 1], records[#records + 1] = due[index], record
    end
  end
  if #ids > 0 then
    settle(pool, 'expired', ids, records)
  end
  if #strays > 0 then
    redis.call('ZREM', HOLDS, unpack(strays))
  end
  return is_more_due, ids, records
end

-- Expire some due holds before an order is refused, unless another party decides them. Return true if more may be due, so
-- that nothing can be refused yet.
local function give_back_some(pool)
  if pool.is_gated or is_nothing_due then
    return false
  end
  if due_so_far >= DUE_IN_ALL_MAX then
    return true
  end
  due_so_far = due_so_far + DUE_MAX
  local is_more_due = expire_due(pool, DUE_MAX)
  is_nothing_due = not is_more_due
  return is_more_due
end

-- The reason that refuses `quantity`, or nil if there is room.
local function refusal(pool, quantity)
  if pool.available >= quantity then
    return nil
  end
  local is_more_due = give_back_some(pool)
  if pool.available >= quantity then
    return nil
  end
  return is_more_due and 'busy' or 'sold_out'
end

-- Milliseconds until the first hold ends, after which an order that was refused may get its units; 0 if some have ended and
-- wait for another party, or for a lease. "" if nothing is on hold for a while only.
local hold_ends_in
local function first_end()
  if not hold_ends_in then
    local first = tonumber(redis.call('ZRANGE', HOLDS, 0, 0, 'WITHSCORES')[2] or '')
    local is_for_a_while = first and digits(first) ~= SUBMITTED_UNTIL
    hold_ends_in = is_for_a_while and digits(math.max(0, first - now_ms)) or ''
  end
  return hold_ends_in
end

-- The line of a refusal of `allowed`. Its numbers are the pool's at its sequence number, as in the ledger: it is created
-- after the last entry of the call.
local function refusal_line(pool, why)
  if why == 'busy' then
    return 'busy\t' .. digits(pool.sequence) .. '\t0'
  end
  if why == 'sold_out' then
    return table.concat({ why, digits(pool.available), digits(pool.reserved), digits(pool.sequence), pool.epoch,
      first_end() }, '\t')
  end
  return why
end

-- How many units an order gets, or nil and the reason: busy, sold_out, closed, nobody, or the line of a limit. With
-- `is_partial` it gets what is left.
local function allowed(pool, quantity, customer, is_partial)
  if pool.is_closed then
    return nil, 'closed'
  end
  local wanted = quantity
  if pool.customer_limit > 0 then
    if customer == '' then
      return nil, 'nobody'
    end
    if pool.customer_limit - bought_by(customer) < wanted then
      local is_more_due = give_back_some(pool) -- the customer's expired orders do not count
      local left = pool.customer_limit - bought_by(customer)
      if left < wanted and is_more_due then
        return nil, 'busy'
      end
      if left <= 0 or left < wanted and not is_partial then
        return nil, 'limit\t' .. digits(pool.customer_limit) .. '\t' .. digits(bought_by(customer))
      end
      wanted = math.min(wanted, left)
    end
  end
  local why = refusal(pool, wanted)
  if why == 'sold_out' and is_partial and pool.available > 0 then
    return math.min(wanted, pool.available)
  end
  if why then
    return nil, why
  end
  return wanted
end

-- With `is_own`, this very call has decided the order, in an attempt whose reply was lost.
local function settled_line(record, is_own)
  local has_none = record.state == 's' and record.quantity == 0 -- it had no units here yet: those it asked for are sold
  local line = table.concat({ 'settled', record.state, has_none and record.asked or digits(record.quantity),
    record.segment and digits(record.segment) or '', record.fence, digits(record.sequence) }, '\t')
  return is_own and line .. '\town' or line
end

-- --- the whole pool ---

-- Units that each segment gets of `count` units, and how many segments, from 0, get one more.
local function shares_of(count, segment_count)
  return math.floor(count / segment_count), count % segment_count
end

-- Split `count` units evenly over segments, as parts that start at segment 0; zeros are left out. To format a number takes
-- longer than to join two texts, so the parts are made by hundreds, of a head and an ending each.
local function even_parts(count, segment_count)
  local parts, base, extra = {}, shares_of(count, segment_count)
  local more, less = ':' .. digits(base + 1), ':' .. digits(base)
  local last, with_more, with_less = (base > 0 and segment_count or extra) - 1, {}, {}
  for segment = 0, math.min(99, last) do
    parts[segment + 1] = segment .. (segment < extra and more or less)
  end
  for ending = 0, last > 99 and 99 or -1 do
    local text = string.format('%02d', ending)
    with_more[ending], with_less[ending] = text .. more, text .. less
  end
  for first = 100, last, 100 do
    local head = digits(first / 100)
    for ending = 0, math.min(99, last - first) do
      local segment = first + ending
      parts[segment + 1] = head .. (segment < extra and with_more or with_less)[ending]
    end
  end
  return table.concat(parts, ',')
end

-- Write the stock of a pool that has none: `count` units, evenly split.
local function write_stock(count, segment_count)
  local base, extra = shares_of(count, segment_count)
  local more, less = digits(base + 1), digits(base)
  each_chunk(segment_count, MANY, function(first, last)
    local fields, size = {}, 0
    for segment = first, last do
      fields[size + 1], fields[size + 2], size = segment, segment < extra and more or less, size + 2
    end
    redis.call('HSET', STOCK, unpack(fields))
  end)
end

-- Add `count` units evenly to all segments, and return their parts. Fails before any write if units of one cannot be read.
local function spread(pool, count)
  local asked, base, extra = {}, shares_of(count, pool.segment_count)
  for segment = 0, (base > 0 and pool.segment_count or extra) - 1 do
    asked[segment + 1] = segment
  end
  read_units(asked)
  if next(unreadable) then
    error(DRIFTED)
  end
  for _, segment in ipairs(asked) do
    add_units(segment, base + (segment < extra and 1 or 0))
  end
  return even_parts(count, pool.segment_count)
end

-- Totals, sequence number and units by segment: the answer of read_pool, and a part of other answers. With `is_even` the
-- units are evenly split, which the caller can work out: "even" in their place.
local function pool_state(is_even)
  local answer = { 'pool' }
  local found = redis.call('HMGET', META, 'epoch', 'segment_count', 'gated', 'sequence', 'opened', 'available',
    'reserved', 'confirmed', 'restocked', 'withdrawn', 'sent', 'received', 'customer_limit', 'closed')
  for index = 1, #found do
    answer[index + 1] = found[index]
  end
  answer[#answer + 1] = digits(redis.call('HLEN', ORDERS))
  answer[#answer + 1] = is_even and 'even' or redis.call('HGETALL', STOCK)
  local texts_of = redis.call('HMGET', META, 'profile', 'sale_id', 'queue', 'step')
  for index = 1, 4 do
    answer[#answer + 1] = texts_of[index] or ''
  end
  return answer
end
