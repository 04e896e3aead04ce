#!lua
-- uses shared/pool.lua
-- Take units for a while, without a lock.
-- ARGV     1 order_id   2 quantity   3 customer_id ("" for none)   4 fingerprint   5 hold_ms
-- answers  {"missing"}    the pool is not open
--          {"mismatch"}   the id exists with other content
--          {"settled", state, quantity, segment, fence, sequence, "1"}   decided before
--          {"reserved", epoch, segment, parts, sequence, replay}   a repeat is a replay, held anew
--          {"sold_out", available, reserved, sequence, "0"}
--          {"busy", sequence, "0"}   more holds are due than one step gives back: ask again
local id, quantity = ARGV[1], tonumber(ARGV[2])
local found = redis.call('HMGET', META, 'epoch', 'segment_count', 'gated', 'sequence')
if not found[1] then
  return { 'missing' }
end
local record = read_order(id)
if record then
  if record.fingerprint ~= ARGV[4] then
    return { 'mismatch' }
  end
  if record.state ~= 'reserved' then
    return settled(record, '1')
  end
  record.hold_until = math.max(record.hold_until, now_ms + tonumber(ARGV[5]))
  redis.call('ZADD', HOLDS, record.hold_until, id)
  write_order(id, record)
  return { 'reserved', found[1], digits(record.segment), parts_text(record.parts), digits(record.sequence), '1' }
end

local refusal = refusal_for_want_of_units(quantity, found[3] == '1')
if refusal then
  return refusal
end
-- round robin over the segments by the sequence number: exact for orders of one unit
local start = tonumber(found[4]) % tonumber(found[2])
local parts = gather(start, quantity, tonumber(found[2]))
record = { quantity = quantity, segment = parts[1][1], parts = parts, hold_until = now_ms + tonumber(ARGV[5]),
  customer = ARGV[3] ~= '' and ARGV[3] or nil, fingerprint = ARGV[4] }
take(id, record)
return { 'reserved', found[1], digits(record.segment), parts_text(parts), digits(record.sequence), '0' }
