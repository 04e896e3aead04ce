#!lua flags=allow-oom
-- uses shared/pool.lua
-- Give the units back if the hold has lapsed and no lease lives.
-- ARGV     1 order_id   2 voided ("1": the order database has voided it)
-- answers  {"missing"}   {"unknown"}   {"alive"}   not yet
--          {"gated"}   the order database must void the order first
--          {"settled", state, quantity, segment, fence, sequence, replay}
local gated = redis.call('HGET', META, 'gated')
if not gated then
  return { 'missing' }
end
local record = read_order(ARGV[1])
if not record then
  return { 'unknown' }
end
if record.state ~= 'reserved' then
  return settled(record, '1')
end
if record.hold_until > now_ms or has_lease(record) then
  return { 'alive' }
end
if gated == '1' and ARGV[2] ~= '1' then
  return { 'gated' }
end
settle(ARGV[1], record, 'expired')
return settled(record, '0')
