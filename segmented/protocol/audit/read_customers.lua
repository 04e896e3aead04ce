#!lua flags=no-writes
-- uses shared/pool.lua
-- Units that customers have, and the sequence number at which they have them, in one step, whatever somebody else has
-- written there.
-- ARGV     customer ids, at most 1,000
-- answers  {"missing"}   {"customers", sequence, {units or nothing, ...}}
local found = redis.call('HMGET', META, 'epoch', 'sequence')
if not (found[1] or found[2]) then
  return { 'missing' }
end
return { 'customers', found[2] or '', redis.call('HMGET', CUSTOMERS, unpack(ARGV)) }
