#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 3:1 4
-- Extend a grant's lease and hold, only if the lease is still the holder's.
-- ARGV     1 order_id   2 holder_id   3 ttl_ms   4 hold_ms
-- answers  {"unknown"}   {"lost"}   {"renewed"}
local pool = read_pool()
local id, holder_id, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local record = read_order(id)
if not record then
  return { 'unknown' }
end
if record.state ~= 'r' or record.holder ~= holder_id or not has_lease(record) then
  return { 'lost' }
end
redis.call('PEXPIRE', lock_of(record.segment), ttl_ms)
note_free_at(pool, record.segment, now_ms + ttl_ms)
redis.call('ZADD', HOLDS, 'GT', digits(now_ms + tonumber(ARGV[4])), id)
return { 'renewed' }
