#!lua flags=no-writes
-- uses shared/pool.lua
-- Records and the ends of their holds, in one step.
-- ARGV     order ids, at most 1,000
-- answers  {"orders", {record or nothing, ...}, {ms or nothing, ...}}   of a pool that is not open: nothings
return { 'orders', redis.call('HMGET', ORDERS, unpack(ARGV)), redis.call('ZMSCORE', HOLDS, unpack(ARGV)) }
