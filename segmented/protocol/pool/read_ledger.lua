#!lua flags=no-writes
-- uses shared/pool.lua
-- Entries after a sequence number, oldest first: a page of up to 256 KiB and one more entry. The id of an entry is
-- epoch-sequence. Those of an earlier epoch are in the ledger after a thaw, until a trim; the relay reads them as well.
-- ARGV     1 after (sequence)   2 limit   3 epoch of that sequence number ("": the pool's)
-- answers  {"entries", {{id, {field, value, ...}}, ...}}
check_archived()
local epoch = redis.call('HGET', META, 'epoch') or error(MISSING)
if (whole(epoch) or 0) < 1 then
  error(DRIFTED)
end
local entries = entries_after((ARGV[3] ~= '' and ARGV[3] or epoch) .. '-' .. ARGV[1], '+', tonumber(ARGV[2]), PAGE_BYTES)
return { 'entries', entries }
