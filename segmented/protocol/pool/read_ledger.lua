#!lua flags=no-writes
-- uses shared/pool.lua
-- Entries after a sequence number, oldest first. The id of an entry is epoch-sequence.
-- ARGV     1 after (sequence)   2 limit
-- answers  {"missing"}   {"entries", {{id, {field, value, ...}}, ...}}
local epoch = redis.call('HGET', META, 'epoch')
if not epoch then
  return { 'missing' }
end
return { 'entries', redis.call('XRANGE', LEDGER, '(' .. epoch .. '-' .. ARGV[1], '+', 'COUNT', ARGV[2]) }
