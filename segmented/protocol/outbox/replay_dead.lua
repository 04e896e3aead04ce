#!lua
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Take orders out of the dead-letter set: they are published again at once, as if for the first time. An order that was
-- decided in the meantime only leaves the set.
-- ARGV     order ids, at most 1,000
-- answers  {"missing"}
--          {"replayed", lines}   one line per order, separated by newlines, with tabs inside:
--            unknown      not in the set
--            settled, state, quantity, segment, fence, sequence   decided in the meantime
--            replayed
local pool = read_pool()
if not pool then
  return { 'missing' }
end
local answers = {}
for index, id in ipairs(ARGV) do
  local raw = redis.call('HGET', DEAD, id)
  local bound = raw and binding(redis.call('HGET', ORDERS, id), id)
  local record = bound and parsed(bound)
  if not raw then
    answers[index] = 'unknown'
  elseif record and record.state ~= 'r' then
    answers[index] = settled_line(record)
    redis.call('HDEL', DEAD, id)
  else
    local quantity, customer = string.match(raw, '^%d+\t%d+\t[^\t]*\t(%d*)\t(.*)$')
    if not record and quantity == '' then
      answers[index] = 'unknown' -- its record is gone: there is nothing to publish
    else
      local entry = { begun = 0, published = 0, quantity = not record and tonumber(quantity) or nil,
        customer = not record and customer or '', reason = '', until_ms = 0, worker = '' }
      redis.call('HSET', ENTRIES, id, packed_entry(entry))
      redis.call('ZADD', OUTBOX, digits(now_ms), id)
      redis.call('ZADD', HOLDS, 'XX', SUBMITTED_UNTIL, id)
      answers[index] = 'replayed'
    end
    redis.call('HDEL', DEAD, id)
  end
end
return { 'replayed', table.concat(answers, '\n') }
