#!lua flags=allow-oom
-- uses shared/pool.lua
-- Begin to archive a closed pool in which nothing is left to decide: from now on it answers reads alone, so that it can
-- be read in many steps as it is. A repeat begins again, unless the archive is complete and the pool is being removed.
-- Or begin to delete it: the pool is being removed at once, with the digest 0 and no target.
-- KEYS     after those of the pool: 15 carts (hash)   16 unfinished (zset): the carts that the pool keeps
-- ARGV     1 purpose ("archive", "check": change nothing, "delete", or "drop": delete a pool as it is, also one that is open,
--          frozen, or has something left to decide)
-- answers  {"open"}   it is not closed
--          {"unsettled", reserved (units), unfinished (submitted orders), away (transfers), unfinished (carts),
--           behind (changes that are not relayed to the order database; 0 without a relay)}
--          {"exporting", epoch}
--          {"removing", epoch, digest, target}   of the complete archive
local purpose = ARGV[1]
check_one_of({ archive = true, check = true, delete = true, drop = true }, purpose)
local is_checked = purpose ~= 'drop'
local pool = read_numbers()
if not pool or not pool.archive and is_checked then
  pool = read_pool()
end
if is_checked then
  check_seen(pool)
end
local digest, target = string.match(pool.archive or '', '^removing (%x+) (%S*)$')
if digest then
  return { 'removing', pool.epoch, digest, target }
end
if is_checked and not pool.is_closed then
  return { 'open' }
end
local notes, away = redis.call('HKEYS', TRANSFERS), 0
for _, name in ipairs(notes) do
  away = away + (string.find(name, '^away:') and 1 or 0)
end
local orders, carts = redis.call('ZCARD', OUTBOX), redis.call('ZCARD', KEYS[16])
redis.call('HLEN', KEYS[15])
local behind, relayed = 0, redis.call('HGET', META, 'relayed') -- epoch-sequence, of a pool whose ledger is relayed
if relayed and relayed ~= pool.epoch .. '-' .. digits(pool.sequence) then
  local epoch, sequence = string.match(relayed, '^(%d+)%-(%d+)$')
  behind = math.max(1, pool.sequence - (epoch == pool.epoch and tonumber(sequence) or 0))
end
if is_checked and (pool.reserved ~= 0 or orders + away + carts + behind > 0) then
  return { 'unsettled', digits(pool.reserved), digits(orders), digits(away), digits(carts), digits(behind) }
end
if not is_checked or purpose == 'delete' then
  redis.call('HSET', META, 'archive', 'removing 0 ')
  return { 'removing', pool.epoch, '0', '' }
elseif purpose == 'archive' then
  redis.call('HSET', META, 'archive', 'exporting ' .. this_server)
end
return { 'exporting', pool.epoch }
