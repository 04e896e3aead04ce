#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- numbers 2:1 3 4
-- Extend a worker's time for its orders, with the holds of their units and the lease of its segment.
-- ARGV     1 holder_id   2 ttl_ms   3 hold_ms   4 work_ms   5 on: order ids, at most 1,000
-- answers  {"renewed", order_id, ...}   those that are still the worker's
local holder_id, ttl_ms, hold_until = ARGV[1], tonumber(ARGV[2]), digits(now_ms + tonumber(ARGV[3]))
local work_until_ms = now_ms + tonumber(ARGV[4])
local pool = read_pool()
local ids = { unpack(ARGV, 5) }
local raws, entries = redis.call('HMGET', ORDERS, unpack(ids)), redis.call('HMGET', ENTRIES, unpack(ids))
local answer, notes, places, holds, renewed = { 'renewed' }, {}, {}, {}, {}
for index, id in ipairs(ids) do
  local record, entry = raws[index] and parsed(raws[index]), entry_of(entries[index])
  if record and record.state == 'r' and entry.worker == holder_id then
    entry.until_ms = work_until_ms
    notes[#notes + 1], notes[#notes + 2] = id, packed_entry(entry)
    places[#places + 1], places[#places + 2] = digits(work_until_ms), id
    holds[#holds + 1], holds[#holds + 2] = hold_until, id
    if record.holder == holder_id and not renewed[record.segment] and has_lease(record) then
      renewed[record.segment] = true
    end
    answer[#answer + 1] = id
  end
end
for segment in pairs(renewed) do
  redis.call('PEXPIRE', lock_of(segment), ttl_ms)
  note_free_at(pool, segment, now_ms + ttl_ms)
end
if #notes > 0 then
  redis.call('HSET', ENTRIES, unpack(notes))
  redis.call('ZADD', OUTBOX, 'XX', 'GT', unpack(places))
  redis.call('ZADD', HOLDS, 'XX', 'GT', unpack(holds))
end
return answer
