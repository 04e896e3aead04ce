#!lua flags=no-writes
-- uses shared/pool.lua
-- The customers' units and the sequence number of that state, in one step. Values that another program wrote are returned
-- unchanged.
-- ARGV     customer ids, at most 1,000
-- answers  {"customers", sequence, {units or nothing, ...}}
local found = redis.call('HMGET', META, 'epoch', 'sequence')
if not (found[1] or found[2]) then
  error(MISSING)
end
return { 'customers', found[2] or '', redis.call('HMGET', CUSTOMERS, unpack(ARGV)) }
