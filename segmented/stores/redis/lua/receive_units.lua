#!lua
-- uses shared/pool.lua
-- Put units from another shard in: only the transfer after the last one from there, so that none comes in twice however
-- often and however late this is asked. Also into a pool that is closed: they came out of another such shard.
-- ARGV     1 source (number of a shard)   2 number   3 units
-- answers  {"missing"}   {"skipped", last}   a transfer before it has not come in
--          {"received", replay}
--          {"drifted"}   the units of a segment, or a number, cannot be read
local source, number, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local last, sum = string.match(redis.call('HGET', TRANSFERS, 'received:' .. source) or '0 0', '^(%d+) (%d+)$')
local totals = redis.call('HGET', META, 'received')
if not last or not (totals and whole(totals)) then
  return { 'drifted' }
end
if number <= tonumber(last) then
  return { 'received', '1' }
end
if number > tonumber(last) + 1 then
  return { 'skipped', last }
end
local parts = even_parts(count, pool.segment_count)
for segment, share in string.gmatch(parts, '(%d+):(%d+)') do
  add_units(tonumber(segment), tonumber(share))
  if unreadable[tonumber(segment)] then
    return { 'drifted' }
  end
end
pool.available = pool.available + count
append(pool, 'received', pool_line(source .. ':' .. digits(number), count, parts, '')) -- the first write
redis.call('HSET', TRANSFERS, 'received:' .. source, digits(number) .. ' ' .. digits(tonumber(sum) + count))
redis.call('HSET', META, 'received', digits(tonumber(totals) + count))
write_pool(pool)
return { 'received', '0' }
