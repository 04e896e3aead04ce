#!lua
-- uses shared/pool.lua
-- Compare a gated pool with what its order database has seen, and note that it was verified on this server.
-- ARGV     1 epoch   2 sequence (the highest of an order that the database has confirmed in this epoch)
--          3 turn (of the server and the epoch in which the database was read; "" at first)
-- answers  {"missing"}
--          {"not_gated"}     it has no order database
--          {"late", epoch}   the database was never in the pool's epoch
--          {"verified", replay}
--          {"another", turn}   the database was read before this turn: read it again, and give this turn
local pool = read_numbers()
if not pool then
  return { 'missing' }
end
if not pool.is_gated then
  return { 'not_gated' }
end
local epoch, sequence = tonumber(ARGV[1]), tonumber(ARGV[2])
local ahead = epoch - tonumber(seen_epoch)
if ahead > 0 or ahead == 0 and sequence > tonumber(seen_sequence) then
  seen_epoch, seen_sequence = ARGV[1], ARGV[2]
end
check_seen(pool)
if epoch < tonumber(pool.epoch) then
  return { 'late', pool.epoch }
end
if pool.server == this_server or this_server == '?' and pool.server ~= '' then
  return { 'verified', '1' }
end
local turn = pool.epoch .. ' ' .. this_server
if ARGV[3] ~= turn then
  return { 'another', turn }
end
redis.call('HSET', META, 'server', this_server)
return { 'verified', '0' }
