#!lua flags=no-writes
-- uses shared/pool.lua
-- Units that customers have, and the sequence number at which they have them, in one step.
-- ARGV     customer ids, at most 1,000
-- answers  {"missing"}   {"customers", sequence, {units or nothing, ...}}
local pool = read_pool()
if not pool then
  return { 'missing' }
end
return { 'customers', digits(pool.sequence), redis.call('HMGET', CUSTOMERS, unpack(ARGV)) }
