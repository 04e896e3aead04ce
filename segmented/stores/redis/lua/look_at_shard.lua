#!lua
-- uses shared/pool.lua
-- Tell what a shard has, after some lapsed holds were given back. `increases` grows with every growth of what is free.
-- ARGV     none
-- answers  {"missing"}
--          {"drifted"}   a transfer that may not have arrived cannot be read
--          {"found", available, reserved, increases, more ("1": more holds are due), {target, number, units, ...}}
--          the last: transfers to other shards that may not have arrived
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local kept, away = redis.call('HGETALL', TRANSFERS), {}
for index = 1, #kept, 2 do
  local target = string.match(kept[index], '^away:(%d+)$')
  if target then
    local number, count = string.match(kept[index + 1], '^(%d+) (%d+)$')
    if not number then
      return { 'drifted' }
    end
    away[#away + 1], away[#away + 2], away[#away + 3] = target, number, count
  end
end
local is_more_due = give_back_some(pool)
if due_so_far > 0 then
  write_pool(pool)
end
local increases = redis.call('HGET', META, 'increases') or '0'
return { 'found', digits(pool.available), digits(pool.reserved), increases, is_more_due and '1' or '0', away }
