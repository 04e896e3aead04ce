#!lua
-- uses shared/pool.lua
-- Remove entries that another program added after the ledger's last change: otherwise the pool cannot append any more. A
-- stream accepts no id below that of a deleted entry, so the pool's own entries are copied into a new stream (KEYS[15])
-- that replaces the old one; until then the ledger does not change. An entry that looks like the pool's own is never
-- removed. The ledger gets an entry with the number of removed ones. A repeat finds nothing to repair, or continues.
-- KEYS     as in shared/pool.lua, and 15 ledger_copy (stream, only while a repair is under way)
-- ARGV     none
-- answers  {"missing"}
--          {"sound"}       no entry is beyond the last change
--          {"differing"}   an entry beyond is the pool's own: the sequence number was changed, not the ledger
--          {"outrun"}      some entries were removed or copied, and more remain: call again
--          {"mended", sequence}
local PAGE = 1000
local COPIED_MAX = 1000
local COPIED_BYTES = 262144
local COPY = KEYS[15]
local pool = read_pool()
if not pool then
  return { 'missing' }
end
if redis.call('EXISTS', LEDGER) == 0 then
  return { 'sound' }
end
local own_id = pool.epoch .. '-' .. digits(pool.sequence)
local last_id
local about = redis.call('XINFO', 'STREAM', LEDGER)
for index = 1, #about, 2 do
  last_id = about[index] == 'last-generated-id' and about[index + 1] or last_id
end
local epoch, sequence = string.match(last_id, '^(%d+)-(%d+)$')
local is_earlier = tonumber(epoch) < tonumber(pool.epoch)
if is_earlier or epoch == pool.epoch and tonumber(sequence) <= pool.sequence then
  return { 'sound' }
end

local beyond = redis.call('XRANGE', LEDGER, '(' .. own_id, '+', 'COUNT', PAGE + 1)
local ids = {}
for index, entry in ipairs(beyond) do
  local names = {}
  for field = 1, #entry[2], 2 do
    names[entry[2][field]] = true
  end
  if names.kind and names.at_us and names.lines and names.chain then
    return { 'differing' }
  end
  if index <= PAGE then
    ids[index] = entry[1]
  end
end
if #beyond > PAGE then
  redis.call('XDEL', LEDGER, unpack(ids))
  return { 'outrun' }
end

local newest = redis.call('XREVRANGE', COPY, '+', '-', 'COUNT', 1)[1]
local same = newest and redis.call('XRANGE', LEDGER, newest[1], newest[1])[1]
if newest and not (same and table.concat(same[2], '\n') == table.concat(newest[2], '\n')) then
  redis.call('DEL', COPY) -- left by an abandoned repair of another ledger
  return { 'outrun' }
end
local from = newest and '(' .. newest[1] or '-'
for _, entry in ipairs(entries_after(newest and newest[1] or '0-0', own_id, COPIED_MAX, COPIED_BYTES)) do
  redis.call('XADD', COPY, entry[1], unpack(entry[2]))
  from = '(' .. entry[1]
end
if #redis.call('XRANGE', LEDGER, from, own_id, 'COUNT', 1) > 0 then
  return { 'outrun' }
end
if redis.call('XLEN', COPY) ~= redis.call('XLEN', LEDGER) - #beyond then
  redis.call('DEL', COPY) -- the ledger has changed since the copy was started
  return { 'outrun' }
end
redis.call('DEL', LEDGER)
if redis.call('EXISTS', COPY) > 0 then
  redis.call('RENAME', COPY, LEDGER)
end
append(pool, 'repaired', pool_line('', #beyond, '', 'ledger end'))
write_pool(pool)
return { 'mended', digits(pool.sequence) }
