#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1 2
-- Take free units out for another shard. They are noted as away until `acknowledge_units`; there is one transfer to a
-- shard at a time, so a repeat finds it.
-- ARGV     1 target (number of a shard)   2 units (maximum)   3 stored ("1": the order database stores transfers, too)
-- answers  {"none"}   nothing is free
--          {"gated"}   its order database must store the transfer
--          {"away", number, units, sent in all, epoch}
local target, wanted = ARGV[1], tonumber(ARGV[2])
local pool = read_pool()
if pool.is_gated and ARGV[3] ~= '1' then
  return { 'gated' }
end
local found = redis.call('HMGET', TRANSFERS, 'away:' .. target, 'sent:' .. target)
local totals = redis.call('HGET', META, 'sent')
local last, sum = string.match(found[2] or '0 0', '^(%d+) (%d+)$')
if not last or not (totals and whole(totals)) then
  error(DRIFTED)
end
if found[1] then
  local number, count = string.match(found[1], '^(%d+) (%d+)$')
  return number and { 'away', number, count, sum, pool.epoch } or error(DRIFTED)
end
local count = math.min(wanted, pool.available)
if count <= 0 then
  return { 'none' }
end
local parts = gather_parts(pool, count)
local number = digits(tonumber(last) + 1)
pool.available = pool.available - count
append(pool, 'sent', pool_line(target .. ':' .. number, count, parts, '')) -- the first write
local in_all = digits(tonumber(sum) + count)
redis.call('HSET', TRANSFERS, 'away:' .. target, number .. ' ' .. digits(count), 'sent:' .. target, number .. ' ' .. in_all)
redis.call('HSET', META, 'sent', digits(tonumber(totals) + count))
write_pool(pool)
return { 'away', number, digits(count), in_all, pool.epoch }
