#!lua flags=no-writes
-- uses shared/pool.lua
-- Entries after a sequence number, oldest first: a page of up to 256 KiB and one more entry. The id of an entry is
-- epoch-sequence.
-- ARGV     1 after (sequence)   2 limit
-- answers  {"missing"}   {"entries", {{id, {field, value, ...}}, ...}}
check_archived()
local epoch = redis.call('HGET', META, 'epoch')
if not epoch then
  return { 'missing' }
end
local entries = entries_after(epoch .. '-' .. ARGV[1], '+', tonumber(ARGV[2]), PAGE_BYTES)
return { 'entries', entries }
