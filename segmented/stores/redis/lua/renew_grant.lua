#!lua flags=allow-oom
-- uses shared/pool.lua
-- Push the end of a grant's lease and hold out, only if the lease is still the holder's.
-- ARGV     1 order_id   2 holder_id   3 ttl_ms   4 hold_ms
-- answers  {"missing"}   {"unknown"}   {"lost"}   {"renewed"}
if redis.call('HLEN', META) == 0 then
  return { 'missing' }
end
local id, holder_id = ARGV[1], ARGV[2]
local record = read_order(id)
if not record then
  return { 'unknown' }
end
if record.state ~= 'reserved' or record.holder ~= holder_id
  or redis.call('GET', lock_of(digits(record.segment))) ~= holder_id then
  return { 'lost' }
end
redis.call('PEXPIRE', lock_of(digits(record.segment)), ARGV[3])
redis.call('ZADD', FREE, now_ms + tonumber(ARGV[3]), digits(record.segment))
record.hold_until = math.max(record.hold_until, now_ms + tonumber(ARGV[4]))
redis.call('ZADD', HOLDS, record.hold_until, id)
write_order(id, record)
return { 'renewed' }
