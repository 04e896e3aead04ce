#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Extend a worker's time for its orders, with the holds of their units and the lease of its segment.
-- ARGV     1 holder_id   2 ttl_ms   3 hold_ms   4 work_ms   5 on: order ids, at most 1,000
-- answers  {"missing"}   {"renewed", order_id, ...}   those that are still the worker's
local holder_id, ttl_ms, hold_until = ARGV[1], tonumber(ARGV[2]), digits(now_ms + tonumber(ARGV[3]))
local work_until_ms = now_ms + tonumber(ARGV[4])
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local ids = {}
for index = 5, #ARGV do
  ids[index - 4] = ARGV[index]
end
local raws, entries = redis.call('HMGET', ORDERS, unpack(ids)), redis.call('HMGET', ENTRIES, unpack(ids))
local answer = { 'renewed' }
for index, id in ipairs(ids) do
  local record, entry = raws[index] and parsed(raws[index]), entry_of(entries[index])
  if record and record.state == 'r' and entry.worker == holder_id then
    entry.until_ms = work_until_ms
    redis.call('HSET', ENTRIES, id, packed_entry(entry))
    redis.call('ZADD', OUTBOX, 'XX', 'GT', digits(work_until_ms), id)
    redis.call('ZADD', HOLDS, 'XX', 'GT', hold_until, id)
    if record.holder == holder_id and has_lease(record) then
      redis.call('PEXPIRE', lock_of(record.segment), ttl_ms)
      note_free_at(pool, record.segment, now_ms + ttl_ms)
    end
    answer[#answer + 1] = id
  end
end
return answer
