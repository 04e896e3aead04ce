#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/assignment.lua
-- End reservations: one, or many, each as if alone. Works when memory is full.
-- In a gated pool its order database decides, and the caller says that it has.
-- "confirmed" makes them final, and needs no lease. The segment is freed if its holder still has it; a holder whose lease
-- has expired does not free its successor's.
-- "cancelled" gives the units back on purpose. With a holder id, only while the order is still that holder's: a holder
-- whose lease has expired must not cancel its successor's order.
-- "expired" gives them back if the hold has expired and no lease is alive.
-- ARGV     1 state   2 words, separated by spaces:
--            decided   the order database of this pool has stored, or voided, these orders; "decided:2" if it is known
--                      that it stored them in epoch 2
--            idle      only submitted orders that no worker has in hand
--            unheard   cancelled for a caller that is gone, so that the id can be used again
--            sold      cancelled because the order database sold them in an earlier epoch
--            quiet     wake no waiter
--          3 order ids, a JSON list of at most 1,000
--          4 queue and 5 step of the worker ("" for none): with idle alone
--          then the holder_id of all of them ("" or absent: any holder)
-- answers  {"elsewhere", queue, step}   idle: the pool names these for its orders, and the worker has another queue or step
--          {"settled", sequence, lines, epoch}   one line per order, separated by newlines, with tabs inside. Fewer lines than
--            orders: the others need another call, because the first ones have many parts.
--            unknown      no such order
--            queued       submitted, and no worker has decided it yet; cancelled: it ends without units; idle: also one that
--                         waits for no worker: it was reserved otherwise, or is dead
--            settled, state, quantity, segment, fence, sequence   decided before; with "own" behind it: by an earlier
--                         attempt of this call, whose reply was lost
--            superseded, fence   cancelled: another holder has it
--            alive        expired: not yet; idle: a worker has it in hand
--            gated        the order database must store (confirmed) or void it first
--            late         confirmed: stored in an earlier epoch than the pool is in, whose numbers count it already
--            drifted      its segment's units cannot be read: written to from outside
--            done, quantity, segment, fence   ended now, at the answer's sequence
local state, asked = ARGV[1], {} -- word -> what follows its colon
for word, detail in string.gmatch(ARGV[2], '(%a+):?(%d*)') do
  asked[word] = detail
end
local is_decided, is_idle = asked.decided, asked.idle
local noted = asked.unheard and 'v' or asked.sold and 's' or nil
is_quiet = asked.quiet
local refusal = is_idle and assigned_elsewhere(ARGV[4], ARGV[5])
if refusal then
  return refusal
end
local pool = read_pool()
local is_late = state == 'confirmed' and (tonumber(asked.decided) or tonumber(pool.epoch)) < tonumber(pool.epoch)
local ids, holder_id = texts_in(ARGV[3]), ARGV[is_idle and 6 or 4] or ''
check_one_of(noted and { cancelled = true } or { confirmed = true, cancelled = true, expired = true }, state)
local raws = raws_of(ids)
local due = state == 'expired' and redis.call('ZMSCORE', HOLDS, unpack(ids))

local entries = is_idle and has_entries and redis.call('HMGET', ENTRIES, unpack(ids)) or {}
local waiting = is_idle and redis.call('ZMSCORE', OUTBOX, unpack(ids))

local answers, done_ids, done_records, keeps, seen = {}, {}, {}, {}, {}
local is_gated = pool.is_gated and not is_decided
local ends_plain = not is_gated and not noted and not is_late

local ENDED_AS = { confirmed = { c = true }, cancelled = { x = true, v = true }, expired = { e = true } }
local is_told = {} -- order id -> true once its answer was given: a second one is a repeat

local function in_hand_until(entry)
  return tonumber(string.match(entry, '^%d+\t%d+\t%d*\t[^\t]*\t[^\t]*\t(%d+)') or '0')
end

local function ended_before(id, record, is_holders)
  local is_own = holder_id ~= '' and record.holder == holder_id
  if (is_own or state == 'confirmed' and is_holders) and not seen[id] and has_lease(record) then
    free_segment(pool, record)
  end
  if seen[id] then
    return 'again'
  end
  local is_own = ENDED_AS[state][record.state] and not is_told[id] and own_change(pool, record.sequence) ~= nil
  is_told[id] = true
  return settled_line(record, is_own)
end

local function decide(index, id, record)
  local is_holders = holder_id == '' or record.holder == holder_id
  if is_late and record.state == 's' and record.asked ~= '' and record.quantity ~= 0 then
    return 'late' -- the record has a part of the units that are sold
  end
  if record.state ~= 'r' or seen[id] then
    return ended_before(id, record, is_holders)
  end
  if is_late then
    return 'late'
  end
  if state == 'cancelled' and not is_holders then
    return 'superseded\t' .. (record.fence ~= '' and record.fence or '0')
  end
  if state == 'expired' and (tonumber(due[index] or '0') > now_ms or has_lease(record)) then
    return 'alive'
  end
  if is_gated then
    return 'gated'
  end
  if state ~= 'confirmed' and not can_give_back(pool, record) then
    return 'drifted'
  end
  seen[id] = record
  keeps[id] = not is_holders
  done_ids[#done_ids + 1], done_records[#done_records + 1] = id, record
  local quantity = noted == 's' and record.quantity == 0 and record.asked or digits(record.quantity)
  return joined({ 'done', quantity, digits(record.segment or -1), record.fence })
end

-- Decide a plain record as `decide` would; nil if it is not plain.
local function decide_plain(index, id, raw)
  local record = ends_plain and holder_id == '' and not seen[id] and of_many(raw)
  if not record or state ~= 'confirmed' and record.count == 0 and not can_give_back(pool, record)
    or state == 'expired' and tonumber(due[index] or '0') > now_ms then
    return nil
  end
  seen[id] = record
  local at = #done_ids + 1
  done_ids[at], done_records[at] = id, record
  if not record.answer then
    record.answer = 'done' .. record.tail
  end
  return record.answer
end

-- The record of a queued order: it has no units yet, and may be cancelled before a worker decides it.
local function queued_record(id)
  local queued = read_queued(id)
  if not queued then
    return nil
  end
  local record = new_record('r', queued)
  record.quantity, record.asked = 0, digits(queued.quantity)
  return record
end

for index, id in ipairs(ids) do
  if work >= WORK_MAX then
    break
  end
  if state ~= 'confirmed' and (index - 1) % CHUNK == 0 then
    read_ahead(pool, raws, index, #ids)
  end
  local raw = binding(raws(index), id)
  if entries[index] and in_hand_until(entries[index]) > now_ms then
    answers[index] = 'alive'
  elseif raw then
    local waits = not waiting or waiting[index]
    local answer = waits and decide_plain(index, id, raw)
    if not answer then
      local record = seen[id] or readable(raw)
      if record then
        note_work(record)
      end
      answer = not record and 'drifted' or not waits and record.state == 'r' and 'queued' or decide(index, id, record)
    end
    answers[index] = answer
  else
    local record = seen[id] or queued_record(id)
    if record and state == 'cancelled' then
      answers[index] = decide(index, id, record)
    else
      answers[index] = is_late and 'late' or record and 'queued' or 'unknown'
    end
  end
end
if #done_ids > 0 then
  settle(pool, state, done_ids, done_records, keeps, noted)
  write_pool(pool)
end
for index, answer in ipairs(answers) do
  if answer == 'again' then
    answers[index] = settled_line(seen[ids[index]])
  end
end
return { 'settled', digits(pool.sequence), table.concat(answers, '\n'), pool.epoch }
