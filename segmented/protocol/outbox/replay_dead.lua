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
local notes, raws = redis.call('HMGET', DEAD, unpack(ARGV)), raws_of(ARGV)
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
    local quantity, customer = string.match(note, '^%d+\t%d+\t[^\t]*\t(%d*)\t(.*)$')
    if not record and quantity == '' then
      answers[index] = 'unknown' -- its record is gone: there is nothing to publish
    else
      publish(id, { begun = 0, published = 0, quantity = not record and tonumber(quantity) or nil,
        customer = not record and customer or '', reason = '', until_ms = 0, worker = '' })
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
