#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 2:1
-- Lengthen the hold of a reserved order, so that it ends `hold_ms` from now or later: never shorten it. A hold that has
-- ended is not lengthened, unless a live lease protects its units: the next call for it gives them back.
-- ARGV     1 order_id   2 hold_ms
-- answers  {"unknown"}   {"queued"}   no worker has decided it yet, so it has no hold
--          {"settled", line}   decided before; the line is as `settle` answers it
--          {"ended"}   its hold has ended, and nobody has given its units back yet
--          {"extended", quantity, segment, parts, sequence, hold_until_ms, epoch}
local pool = read_pool()
local id = ARGV[1]
local raw = binding(redis.call('HGET', ORDERS, id), id)
local until_ms = tonumber(redis.call('ZSCORE', HOLDS, id) or '0')
if not raw then
  return { read_queued(id) and 'queued' or 'unknown' }
end
local record = parsed(raw)
if record.state ~= 'r' then
  return { 'settled', settled_line(record) }
end
if until_ms <= now_ms and not has_lease(record) then
  return { 'ended' }
end
local longer = now_ms + tonumber(ARGV[2])
if longer > until_ms then
  redis.call('ZADD', HOLDS, 'GT', digits(longer), id)
end
return { 'extended', digits(record.quantity), digits(record.segment), record.parts, digits(record.sequence),
  digits(math.max(longer, until_ms)), pool.epoch }
