#!lua flags=allow-oom
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Note the trace context in which orders were submitted, so that a sweep which publishes them again can name it. Orders
-- that have left the outbox are passed over.
-- ARGV     1 trace context   then up to 1,000 order ids
-- answers  {"noted", how many}
read_pool()
local ids = { unpack(ARGV, 2) }
check_count(#ids)
local places, entries, fields = redis.call('ZMSCORE', OUTBOX, unpack(ids)), redis.call('HMGET', ENTRIES, unpack(ids)), {}
for index, id in ipairs(ids) do
  local entry = entry_of(entries[index])
  if places[index] then
    entry.trace = ARGV[1]
    fields[#fields + 1], fields[#fields + 2] = id, packed_entry(entry)
  end
end
if #fields > 0 then
  redis.call('HSET', ENTRIES, unpack(fields))
end
return { 'noted', #fields / 2 }
