#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1 2 3 4
-- Add units from another shard: the total that it has sent here, less what has arrived before. So no unit arrives twice,
-- however often and late this runs, and units that a shard lost in a failover arrive with the next transfer. This also
-- works in a closed pool: the units came out of another such shard.
-- ARGV     1 source (number of a shard)   2 number of the transfer   3 sent in all (units, this transfer included)
--          4 epoch (of the source, when it answered so)   5 stored ("1": the order database has stored the transfer)
-- answers  {"gated"}   its order database must store the transfer first
--          {"earlier", epoch}   the source was thawed in this later epoch: it may have forgotten the transfer
--          {"received", units}   0: they arrived before
local source, sent = ARGV[1], tonumber(ARGV[3])
local pool = read_pool()
if pool.is_gated and ARGV[5] ~= '1' then
  return { 'gated' }
end
local totals, sum, got = redis.call('HGET', META, 'received'), 0, 0
local notes = by_name(redis.call('HGETALL', TRANSFERS))
local latest = notes['epoch:' .. source] or '0'
for name, note in pairs(notes) do
  local other = string.match(name, '^received:(%d+)$')
  if other then
    local count = tonumber(string.match(note, '^%d+ (%d+)$') or '-1')
    sum = sum + count
    got = other == source and count or got
  end
end
if sum ~= tonumber(totals and whole(totals) or '-1') or got < 0 or not string.match(latest, '^%d+$') then
  error(DRIFTED) -- a number cannot be read, or the notes do not add up to the total
end
if tonumber(ARGV[4]) < tonumber(latest) then
  return { 'earlier', latest }
end
local count = sent - got
if count <= 0 then
  return { 'received', '0' }
end
local parts = spread(pool, count)
pool.available = pool.available + count
append(pool, 'received', pool_line(source .. ':' .. ARGV[2], count, parts, '')) -- the first write
redis.call('HSET', TRANSFERS, 'received:' .. source, ARGV[2] .. ' ' .. digits(sent))
redis.call('HSET', META, 'received', digits(sum + count))
write_pool(pool)
return { 'received', digits(count) }
