#!lua flags=allow-oom
-- uses shared/pool.lua
-- Mend a ledger whose end is beyond the pool's last change: otherwise the pool cannot append any more. Entries of the pool's
-- own that follow its last change, by number and digest, are changes whose script was refused before it wrote the numbers:
-- the sequence number advances to the last of them. Entries that another program added are removed. A stream accepts no id
-- below that of a deleted entry, so the pool's own entries are copied into a new stream (KEYS[15]) that replaces the old
-- one; until then the ledger does not change. An entry that looks like the pool's own is never removed. The ledger gets an
-- entry with the number of removed or counted ones. A repeat finds nothing to repair, or continues.
-- KEYS     as in shared/pool.lua, and 15 ledger_copy (stream, only while a repair is under way)
-- ARGV     none
-- answers  {"sound"}       no entry is beyond the last change
--          {"differing"}   an entry beyond looks like the pool's own, and does not follow its last change
--          {"outrun"}      some entries were counted, removed or copied, and more remain: call again
--          {"mended", sequence}
local PAGE = 1000
local COPIED_MAX = 1000
local COPIED_BYTES = 262144
local COPY = KEYS[15]
local pool = read_pool()
local own_id, own_epoch = pool.epoch .. '-' .. digits(pool.sequence), tonumber(pool.epoch)
local epoch, sequence = last_entry()
if not epoch or epoch < own_epoch or epoch == own_epoch and sequence <= pool.sequence then
  return { 'sound' }
end

local beyond = redis.call('XRANGE', LEDGER, '(' .. own_id, '+', 'COUNT', PAGE + 1)
local ids = {}

-- How many of the entries beyond are the next changes of this pool, and the digest of the last of them.
local function changes_beyond()
  local last = redis.call('XRANGE', LEDGER, own_id, own_id)[1]
  local count, chain = 0, last and is_own_entry(last[2]) and by_name(last[2]).chain or pool.chain
  for index, entry in ipairs(beyond) do
    local id = pool.epoch .. '-' .. digits(pool.sequence + index)
    if entry[1] ~= id or not is_own_entry(entry[2]) then
      break
    end
    local said = by_name(entry[2])
    local found = digest_of(chain, id, said.kind, said.at_us, said.lines)
    if found ~= said.chain then
      break
    end
    count, chain = index, found
  end
  return count, chain
end

local counted, chain = changes_beyond()
if counted > 0 then
  pool.sequence, pool.chain = pool.sequence + counted, chain
  if counted < #beyond then
    write_pool(pool)
    return { 'outrun' }
  end
  append(pool, 'repaired', pool_line('', counted, '', 'sequence'))
  write_pool(pool)
  return { 'mended', digits(pool.sequence) }
end
for index, entry in ipairs(beyond) do
  if is_own_entry(entry[2]) then
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
