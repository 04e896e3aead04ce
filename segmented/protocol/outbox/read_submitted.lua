#!lua flags=no-writes
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Read the state of submitted orders in one step: their decisions, and their pending steps.
-- ARGV     order ids, at most 1,000
-- answers  {"submitted", ms now, {record or nothing, ...}, {entry or nothing, ...}, {due_ms or nothing, ...},
--          {dead or nothing, ...}, {hold_until_ms or nothing, ...}}   of a pool that is not open: nothings
return { 'submitted', digits(now_ms), redis.call('HMGET', ORDERS, unpack(ARGV)), redis.call('HMGET', ENTRIES, unpack(ARGV)),
  redis.call('ZMSCORE', OUTBOX, unpack(ARGV)), redis.call('HMGET', DEAD, unpack(ARGV)),
  redis.call('ZMSCORE', HOLDS, unpack(ARGV)) }
