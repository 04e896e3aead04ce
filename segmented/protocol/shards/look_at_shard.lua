#!lua flags=allow-oom
-- uses shared/pool.lua
-- Read a shard's numbers, after expiring some due holds. `increases` grows whenever free units are added.
-- ARGV     none
-- answers  {"found", available, reserved, increases, more ("1": more holds are due), {target, number, units, sent in all, ...},
--           sequence, epoch, ms}   the list: transfers to other shards that may not have arrived; the time until the first
--            hold ends ("" if none does)
local pool = read_pool()
local kept, away = by_name(redis.call('HGETALL', TRANSFERS)), {}
for field, text in pairs(kept) do
  local target = string.match(field, '^away:(%d+)$')
  if target then
    local number, count = string.match(text, '^(%d+) (%d+)$')
    local last, sum = string.match(kept['sent:' .. target] or '', '^(%d+) (%d+)$')
    if not number or last ~= number then
      error(DRIFTED) -- a transfer cannot be read
    end
    for _, value in ipairs({ target, number, count, sum }) do
      away[#away + 1] = value
    end
  end
end
local before = pool.sequence
local is_more_due = give_back_some(pool)
if pool.sequence > before then
  write_pool(pool)
end
return { 'found', digits(pool.available), digits(pool.reserved), digits(pool.increases or 0), is_more_due and '1' or '0',
  away, digits(pool.sequence), pool.epoch, first_end() }
