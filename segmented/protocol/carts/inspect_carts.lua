#!lua flags=no-writes
-- uses shared/cart.lua
-- Read the raw records of carts, and whether they are among the unfinished ones, in one step.
-- ARGV     cart ids, at most 1,000
-- answers  {"carts", {record or nothing, ...}, {ms or nothing, ...}}
check_pool(true)
return { 'carts', redis.call('HMGET', CARTS, unpack(ARGV)), redis.call('ZMSCORE', UNFINISHED, unpack(ARGV)) }
