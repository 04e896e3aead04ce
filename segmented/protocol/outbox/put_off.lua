#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- numbers 1 3 6
-- Give submitted orders back unfinished: they are published again after a while. A failure that was not the order's fault
-- ("0") does not count as begun. An order that another worker has taken is left alone. A frozen pool answers this, too:
-- a loss is no failure of the orders in hand.
-- ARGV     1 delay_ms   2 counts ("1": the order itself failed)   3 begun_max   4 reason (one line, no tabs)
--          5 holder_id   6 hold_ms (of buried orders)   7 on: order ids, at most 500
-- answers  {"put_off", number buried: begun too often}
local delay_ms, counts, begun_max = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])
local reason, holder_id, hold_until = ARGV[4], ARGV[5], digits(now_ms + tonumber(ARGV[6]))
local pool = read_numbers() or read_pool()
local ids = { unpack(ARGV, 7) }
local raws, entries = redis.call('HMGET', ORDERS, unpack(ids)), redis.call('HMGET', ENTRIES, unpack(ids))
local scores = redis.call('ZMSCORE', OUTBOX, unpack(ids))
local buried, notes, places, freed, due = 0, {}, {}, {}, digits(now_ms + delay_ms)
for index, id in ipairs(ids) do
  local raw, entry = binding(raws[index], id), entry_of(entries[index])
  local record = raw and parsed(raw)
  local is_undecided = record and record.state == 'r' or not record and entry.quantity
  if scores[index] and is_undecided and (entry.worker == '' or entry.worker == holder_id) then
    if not counts and entry.worker ~= '' then
      entry.begun = math.max(0, entry.begun - 1)
    end
    entry.reason = reason
    clear_worker(entry)
    if counts and entry.begun >= begun_max then
      bury(id, entry, hold_until)
      buried = buried + 1
    else
      notes[#notes + 1], notes[#notes + 2] = id, packed_entry(entry)
      places[#places + 1], places[#places + 2] = due, id
    end
    if record and record.holder == holder_id and has_lease(record) then
      freed[#freed + 1] = record
    end
  end
end
write_buried()
if #notes > 0 then
  redis.call('HSET', ENTRIES, unpack(notes))
  redis.call('ZADD', OUTBOX, 'XX', unpack(places))
end
for _, record in ipairs(freed) do
  if has_lease(record) then -- another order of the same segment may have just freed it
    free_segment(pool, record)
  end
end
return { 'put_off', buried }
