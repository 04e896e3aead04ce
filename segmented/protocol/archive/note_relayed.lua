#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1? 2?
-- Note in meta (relayed: epoch-sequence) that a database has the ledger up to this change. The note never moves back. The
-- ledger is trimmed only behind it, so that each entry is relayed before it is deleted. Safe to run twice. Also answers for
-- a frozen pool, because the database should have whatever the ledger still has.
-- ARGV     1 epoch   2 sequence (of the database's last entry; "" and "" if it has none of this pool)
-- answers  {"behind", epoch, sequence}   the pool is at this change, and the database has later ones
--          {"gap", epoch, sequence}      the next entry of the ledger has this id: those in between are gone
--          {"relayed", epoch, sequence}  as given; otherwise the change before the ledger's first entry
local pool = known_numbers()
local noted = redis.call('HMGET', META, 'relayed', 'ledger_start')
local before = noted[1] and (numbers_in(noted[1]) or error(DRIFTED))
local start = whole(noted[2] or '1') or error(DRIFTED)
local function is_before(one, other)
  return one[1] < other[1] or one[1] == other[1] and one[2] < other[2]
end
local function id_of(change)
  return digits(change[1]) .. '-' .. digits(change[2])
end
local own_epoch = tonumber(pool.epoch)
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

local following = next_after(given and '(' .. id_of(given) or '-') or { own_epoch, pool.sequence + 1 }
if given then
  local is_gap = start > given[2] + 1
  if given[1] < own_epoch then
    -- entries of the earlier epoch may be left after a thaw; a trim deletes them only if they were relayed
    local is_next = following[1] == given[1] and following[2] == given[2] + 1
    is_gap = before and is_before(given, before) and not is_next
  end
  if is_gap then
    return { 'gap', digits(following[1]), digits(following[2]) }
  end
else
  if following[2] > 1 then
    if before then -- the rest was relayed to another database
      return { 'gap', digits(following[1]), digits(following[2]) }
    end
    following = { own_epoch, start }
  end
  given = { following[1], following[2] - 1 }
end
if not before or is_before(before, given) then
  redis.call('HSET', META, 'relayed', id_of(given))
end
return { 'relayed', digits(given[1]), digits(given[2]) }
