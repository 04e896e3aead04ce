#!lua flags=allow-oom
-- uses shared/pool.lua
-- Stop a pool whose order database knows of changes that it lacks: no order is answered until it is rebuilt.
-- ARGV     1 epoch (the pool's, as the caller knows it)
-- answers  {"missing"}
--          {"late", epoch}   the pool is in another epoch: what the caller knows is not about it
--          {"frozen", epoch, sequence, seen}
local pool = read_numbers()
if not pool then
  return { 'missing' }
end
if pool.epoch ~= ARGV[1] then
  return { 'late', pool.epoch }
end
freeze_if_behind(pool)
if not pool.frozen then
  pool.frozen = pool.epoch .. '-' .. digits(math.max(pool.sequence, tonumber(seen_sequence)))
  redis.call('HSET', META, 'frozen', pool.frozen)
  redis.pcall('PUBLISH', FREED, 'frozen')
end
return { 'frozen', pool.epoch, digits(pool.sequence), pool.frozen }
