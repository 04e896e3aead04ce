#!lua flags=allow-oom
-- uses shared/pool.lua
-- Compare a gated pool with what its order database has seen, and note that it was verified on this server.
-- ARGV     1 epoch   2 sequence (the highest of an order that the database has confirmed in this epoch)
--          3 turn (of the server and the epoch in which the database was read; "" at first)
--          4 sale_id (of the database; "": it has none)
-- answers  {"not_gated"}     it has no order database
--          {"another_sale"}  the pool has noted another sale than the database's
--          {"late", epoch}   the database was never in the pool's epoch
--          {"verified", replay}
--          {"another", turn}   the database was read before this turn: read it again, and give this turn
local pool = known_numbers()
if not pool.is_gated then
  return { 'not_gated' }
end
local sale_id = redis.call('HGET', META, 'sale_id') or ''
if sale_id ~= ARGV[4] and sale_id ~= '' and ARGV[4] ~= '' then
  return { 'another_sale' }
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
local function note_sale() -- of a pool from before sales had identities
  if sale_id == '' and ARGV[4] ~= '' then
    redis.call('HSET', META, 'sale_id', ARGV[4])
  end
end
if pool.server == this_server or this_server == '?' and pool.server ~= '' then
  note_sale()
  return { 'verified', '1' }
end
local turn = pool.epoch .. ' ' .. this_server
if ARGV[3] ~= turn then
  return { 'another', turn }
end
redis.call('HSET', META, 'server', this_server)
note_sale()
return { 'verified', '0' }
