#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- uses shared/assignment.lua
-- numbers 1 3 4 5 6
-- Return the submitted orders that are due to be published again, longest ago first, and double each one's delay. Orders
-- decided in the meantime leave the outbox; orders begun too often become dead.
-- ARGV     1 limit, at most 1,000   2 the sweeper's fence ("" for none)   3 base_ms   4 most_ms
--          5 hold_ms (of buried orders)   6 begun_max   7 queue and 8 step of the workers ("" for none)
-- answers  {"elsewhere", queue, step}   the pool names these for its orders, and the workers have another queue or step
--          {"superseded", fence}   a sweeper with a later fence has swept since
--          {"swept", more ("1": more are due), {order_id, begun, ...}, {order_id buried, ...},
--          {order_id, trace context, ...}}   of published ones that were submitted in a trace
local limit, base_ms, most_ms = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local hold_until, begun_max = digits(now_ms + tonumber(ARGV[5])), tonumber(ARGV[6])
local refusal = assigned_elsewhere(ARGV[7], ARGV[8])
if refusal then
  return refusal
end
read_pool()
if ARGV[2] ~= '' then
  local last = tonumber(redis.call('HGET', META, 'swept_under') or '0') or 0
  if tonumber(ARGV[2]) < last then
    return { 'superseded', digits(last) }
  end
end
local due = redis.call('ZRANGE', OUTBOX, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit + 1)
local is_more_due = #due > limit
due[limit + 1] = nil
local published, buried, left, traced = {}, {}, {}, {}
if #due > 0 then
  local raws, entries = redis.call('HMGET', ORDERS, unpack(due)), redis.call('HMGET', ENTRIES, unpack(due))
  local places, notes = {}, {}
  for index, id in ipairs(due) do
    local raw, entry = binding(raws[index], id), entry_of(entries[index])
    local is_reserved = raw and string.sub(raw, 1, 1) == 'r'
    if not is_reserved and (raw or not entry.quantity) then
      left[#left + 1] = id
    elseif entry.begun >= begun_max then
      bury(id, entry, hold_until)
      buried[#buried + 1] = id
    else
      local wait_ms = math.min(most_ms, base_ms * 2 ^ math.min(entry.published, 30))
      entry.published = entry.published + 1
      places[#places + 1], places[#places + 2] = digits(now_ms + wait_ms), id
      notes[#notes + 1], notes[#notes + 2] = id, packed_entry(entry)
      published[#published + 1], published[#published + 2] = id, digits(entry.begun)
      if entry.trace ~= '' then
        traced[#traced + 1], traced[#traced + 2] = id, entry.trace
      end
    end
  end
  write_buried()
  if #places > 0 then
    redis.call('ZADD', OUTBOX, 'XX', unpack(places))
    redis.call('HSET', ENTRIES, unpack(notes))
  end
  if #left > 0 then
    has_entries = true
    leave_outbox(left, 'expired')
  end
end
if ARGV[2] ~= '' then
  redis.call('HSET', META, 'swept_under', ARGV[2])
end
return { 'swept', is_more_due and '1' or '0', published, buried, traced }
