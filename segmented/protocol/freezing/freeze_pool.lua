#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1 2
-- Stop a pool whose order database knows of changes that it lacks: no order is answered until it is rebuilt.
-- ARGV     1 epoch (the pool's, as the caller knows it)   2 latest (epoch in which it may have been since; 0: none)
-- answers  {"late", epoch}   the pool is in another epoch: what the caller knows is not about it
--          {"frozen", epoch, sequence, seen}
local pool = known_numbers()
if pool.epoch ~= ARGV[1] then
  return { 'late', pool.epoch }
end
freeze_if_behind(pool)
if not pool.frozen then
  pool.frozen = pool.epoch .. '-' .. digits(math.max(pool.sequence, tonumber(seen_sequence)))
  redis.call('HSET', META, 'frozen', pool.frozen)
  redis.pcall('PUBLISH', FREED, 'frozen')
end
local epoch, sequence = string.match(pool.frozen, '^(%d+)%-(%d+)$')
if tonumber(epoch) < tonumber(ARGV[2]) then
  pool.frozen = ARGV[2] .. '-' .. sequence
  redis.call('HSET', META, 'frozen', pool.frozen)
end
return { 'frozen', pool.epoch, digits(pool.sequence), pool.frozen }
