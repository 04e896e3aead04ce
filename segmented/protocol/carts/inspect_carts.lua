#!lua flags=no-writes
-- uses shared/cart.lua
-- Read the raw records of carts, and whether they are among the unfinished ones, in one step.
-- ARGV     cart ids, at most 1,000
-- answers  {"missing"}   the pool is not open
--          {"carts", {record or nothing, ...}, {ms or nothing, ...}}
if is_pool_missing(true) then
  return { 'missing' }
end
return { 'carts', redis.call('HMGET', CARTS, unpack(ARGV)), redis.call('ZMSCORE', UNFINISHED, unpack(ARGV)) }
