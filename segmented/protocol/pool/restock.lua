#!lua
-- uses shared/pool.lua
-- numbers 3:1
-- Add units to a pool, or remove free ones, once for each change id, while it sells.
-- ARGV     1 change_id   2 kind ("restocked" or "withdrawn")   3 units
--          4 epoch (in which the order database of a gated pool has begun the change; "": none)
-- answers  {"mismatch"}   the id was used for another change
--          {"late", epoch}   it is in another epoch, whose numbers may include the change: ask the order database again
--          {"done", units, sequence, available, replay, epoch}
--          {"closed"}    restocked: the pool is closed
--          {"full", left}   restocked: with these units the pool would have been given more than a script can count
--          {"too_few", available}   withdrawn: fewer are free
local change_id, kind, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local pool = read_pool()
if ARGV[4] ~= '' and ARGV[4] ~= pool.epoch then
  return { 'late', pool.epoch }
end
check_one_of({ restocked = true, withdrawn = true }, kind)
check_texts({ change_id })
local content = kind .. ' ' .. digits(count)
local before = redis.call('HGET', CHANGES, change_id)
if before then
  local done, sequence = string.match(before, '^(%l+ %d+) (%d+)$')
  if done ~= content then
    return { 'mismatch' }
  end
  local replay = own_change(pool, tonumber(sequence)) and '0' or '1'
  return { 'done', digits(count), sequence, digits(pool.available), replay, pool.epoch }
end
local parts
if kind == 'restocked' then
  if pool.is_closed then
    return { 'closed' }
  end
  local left = EXACT_MAX - pool.opened - pool.restocked
  if count > left then
    return { 'full', digits(math.max(0, left)) }
  end
  parts = spread(pool, count)
  pool.available, pool.restocked = pool.available + count, pool.restocked + count
else
  if pool.available < count then
    return { 'too_few', digits(pool.available) }
  end
  parts = gather_parts(pool, count)
  pool.available, pool.withdrawn = pool.available - count, pool.withdrawn + count
end
append(pool, kind, pool_line(change_id, count, parts, ''))
redis.call('HSET', CHANGES, change_id, content .. ' ' .. digits(pool.sequence))
redis.call('HSET', META, 'restocked', digits(pool.restocked), 'withdrawn', digits(pool.withdrawn))
write_pool(pool)
return { 'done', digits(count), digits(pool.sequence), digits(pool.available), '0', pool.epoch }
