#!lua flags=allow-oom
-- uses shared/pool.lua
-- Note in meta (relayed: epoch-sequence) that a database has the ledger up to this change. The note never moves back. The
-- ledger is trimmed only behind it, so that each entry is relayed before it is deleted. Safe to run twice. Also answers for
-- a frozen pool, because the database should have whatever the ledger still has.
-- ARGV     1 epoch   2 sequence (of the database's last entry; "" and "" if it has none of this pool)
-- answers  {"missing"}
--          {"behind", epoch, sequence}   the pool is at this change, and the database has later ones
--          {"gap", epoch, sequence}      the next entry of the ledger has this id: those in between are gone
--          {"relayed", epoch, sequence}  as noted now
local pool = read_numbers()
if not pool then
  return { 'missing' }
end
local noted = redis.call('HMGET', META, 'relayed', 'ledger_start')
local start = whole(noted[2] or '1')
if not start then
  error(DRIFTED)
end
-- an id as its epoch and sequence number; nil for a text that is not one
local function numbers_in(id)
  local epoch, sequence = string.match(id, '^(%d+)%-(%d+)$')
  if epoch and #epoch < 16 and #sequence < 16 then
    return { tonumber(epoch), tonumber(sequence) }
  end
end
local function is_before(one, other)
  return one[1] < other[1] or one[1] == other[1] and one[2] < other[2]
end
local function id_of(change)
  return digits(change[1]) .. '-' .. digits(change[2])
end
local own_epoch = tonumber(pool.epoch)
local before = noted[1] and numbers_in(noted[1])
if noted[1] and not before then
  error(DRIFTED)
end
local given = ARGV[1] ~= '' and { tonumber(ARGV[1]), tonumber(ARGV[2]) }
if given and is_before({ own_epoch, pool.sequence }, given) then
  return { 'behind', pool.epoch, digits(pool.sequence) }
end

-- the entry that is relayed next; a trim deletes the entries before `start` little by little
local function next_after(id)
  local entry = redis.call('XRANGE', LEDGER, id, '+', 'COUNT', 1)[1]
  local found = entry and numbers_in(entry[1])
  if found and found[1] == own_epoch and found[2] < start then
    return { own_epoch, start }
  end
  return found
end

local following = next_after(given and '(' .. id_of(given) or '-')
if given and following then
  local is_gap
  if following[1] == given[1] then
    is_gap = following[2] ~= given[2] + 1
  else -- of a later epoch: then all of the earlier one was relayed, or never acknowledged
    is_gap = before and is_before(given, before)
  end
  if is_gap then
    return { 'gap', digits(following[1]), digits(following[2]) }
  end
elseif not given then
  following = following or { own_epoch, pool.sequence + 1 }
  if following[2] > 1 then
    if before then -- the rest was relayed to another database
      return { 'gap', digits(following[1]), digits(following[2]) }
    end
    following = { own_epoch, start }
  end
  given = { following[1], following[2] - 1 }
end
if not before or is_before(before, given) then
  before = given
  redis.call('HSET', META, 'relayed', id_of(given))
end
return { 'relayed', digits(before[1]), digits(before[2]) }
