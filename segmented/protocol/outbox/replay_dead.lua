#!lua
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Take orders out of the dead-letter set: they are published again at once, as if for the first time. An order that was
-- decided in the meantime only leaves the set.
-- ARGV     order ids, at most 1,000
-- answers  {"replayed", lines}   one line per order, separated by newlines, with tabs inside:
--            unknown      not in the set
--            settled, state, quantity, segment, fence, sequence   decided in the meantime
--            replayed
read_pool()
local notes, kept, raws = redis.call('HMGET', DEAD, unpack(ARGV)), redis.call('HMGET', ENTRIES, unpack(ARGV)), raws_of(ARGV)
local answers, done, entries, places, holds, is_done = {}, {}, {}, {}, {}, {}

local function publish(id, entry)
  local at = #entries
  entries[at + 1], entries[at + 2] = id, packed_entry(entry)
  places[at + 1], places[at + 2] = digits(now_ms), id
  holds[at + 1], holds[at + 2] = SUBMITTED_UNTIL, id
end

for index, id in ipairs(ARGV) do
  local note, raw = notes[index], notes[index] and binding(raws(index), id)
  local record = raw and parsed(raw)
  if not note or is_done[id] then
    answers[index] = 'unknown'
  elseif record and record.state ~= 'r' then
    answers[index] = settled_line(record)
  else
    local entry = entry_of(kept[index])
    if not record and not entry.quantity then
      answers[index] = 'unknown' -- its record is gone, or it expired since: there is nothing to publish
    else
      clear_worker(entry)
      entry.begun, entry.published, entry.reason, entry.by, entry.trace = 0, 0, '', '', ''
      publish(id, entry)
      answers[index] = 'replayed'
    end
  end
  if note and not is_done[id] then
    done[#done + 1], is_done[id] = id, true
  end
end
if #entries > 0 then
  redis.call('HSET', ENTRIES, unpack(entries))
  redis.call('ZADD', OUTBOX, unpack(places))
  redis.call('ZADD', HOLDS, 'XX', unpack(holds))
end
if #done > 0 then
  redis.call('HDEL', DEAD, unpack(done))
end
return { 'replayed', table.concat(answers, '\n') }
