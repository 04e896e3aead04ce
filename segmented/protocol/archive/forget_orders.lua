#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1 2
-- Drop records of finished orders from a gated pool, whose order database answers for them from then on; a repeat of a
-- refused order, or of one whose id can be used again, is a new attempt. Only those whose last change is relayed, and before
-- the ledger's start: no entry of the ledger speaks of them any more. Their confirmed units count in meta as lost (sold units
-- that the pool has no orders for), and their number in forgotten. Their customers keep them: a limit per customer holds.
-- Processes that sell must ask the database about orders that the pool does not know. So the first call drops nothing: it
-- notes when (meta: forgets_from, in ms), and records go `notice_ms` later, when each process has read that. Safe to run
-- twice: a record goes only if its last change is still the named one.
-- ARGV     1 up_to (highest sequence number of a record that may go)   2 notice_ms
--          then for each order, at most 1,000: order_id, sequence
-- answers  {"not_gated"}     it has no order database
--          {"not_trimmed"}   its ledger was not relayed in this epoch and trimmed behind up_to
--          {"waiting", ms}   records may go then
--          {"forgot", orders, units, judged}   fewer judged than named: the others need another call
local FINISHED = { c = true, x = true, s = true, e = true, v = true, f = true }
local pool = read_pool()
if not pool.is_gated then
  return { 'not_gated' }
end
local up_to = tonumber(ARGV[1])
local found = redis.call('HMGET', META, 'relayed', 'ledger_start', 'lost', 'forgotten', 'forgets_from')
local relayed, start = found[1] and numbers_in(found[1]), whole(found[2] or '1')
local lost, forgotten, forgets_from = whole(found[3] or '0'), whole(found[4] or '0'), found[5] and whole(found[5])
if found[1] and not relayed or not start or not lost or not forgotten or found[5] and not forgets_from then
  error(DRIFTED)
end
if not relayed or relayed[1] ~= tonumber(pool.epoch) or up_to > relayed[2] or up_to >= start then
  return { 'not_trimmed' }
end
if not forgets_from then
  redis.call('HSET', META, 'forgets_from', digits(now_ms + tonumber(ARGV[2])), 'forgotten', '0')
  return { 'waiting', ARGV[2] }
end
if forgets_from > now_ms then
  return { 'waiting', digits(math.min(forgets_from - now_ms, tonumber(ARGV[2]))) }
end

local ids, sequences = {}, {}
for index = 3, #ARGV, 2 do
  ids[#ids + 1], sequences[#sequences + 1] = ARGV[index], tonumber(ARGV[index + 1])
end
local raws, gone, units_gone, judged, bytes, is_gone = raws_of(ids), {}, 0, 0, 0, {}
for index, id in ipairs(ids) do
  if bytes > PAGE_BYTES then
    break
  end
  judged = index
  local raw = raws(index)
  if raw and not is_gone[id] then
    bytes = bytes + #raw
    local state, quantity, sequence = string.match(raw, '^(%l)\t(%d+)\t%d*\t(%d+)')
    if state and FINISHED[state] and tonumber(sequence) == sequences[index] and sequences[index] <= up_to then
      gone[#gone + 1], is_gone[id] = id, true
      units_gone = units_gone + (state == 'c' and tonumber(quantity) or 0)
    end
  end
end
if #gone > 0 then
  redis.call('HDEL', ORDERS, unpack(gone))
  redis.call('HSET', META, 'lost', digits(lost + units_gone), 'forgotten', digits(forgotten + #gone))
end
return { 'forgot', digits(#gone), digits(units_gone), digits(judged) }
