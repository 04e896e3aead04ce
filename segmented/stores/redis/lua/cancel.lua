#!lua flags=allow-oom
-- uses shared/pool.lua
-- Give the units back on purpose and free the segment. With a holder id, only while the order is still that holder's:
-- a holder that overslept its lease must not cancel what its successor works on.
-- ARGV     1 order_id   2 holder_id ("" for an operator)   3 voided ("1": the order database has voided it)
-- answers  {"missing"}   {"unknown"}   {"superseded", fence}
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
if ARGV[2] ~= '' and record.holder ~= ARGV[2] then
  return { 'superseded', record.fence or '0' }
end
if gated == '1' and ARGV[3] ~= '1' then
  return { 'gated' }
end
settle(ARGV[1], record, 'cancelled')
return settled(record, '0')
