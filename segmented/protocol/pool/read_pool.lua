#!lua flags=no-writes
-- uses shared/pool.lua
-- Read totals, sequence number and units by segment in one step, even if another program has overwritten them.
-- ARGV     none
-- answers  {"missing"}
--          {"pool", epoch, segment_count, gated, sequence, opened, available, reserved, confirmed, restocked,
--           withdrawn, sent, received, customer_limit, closed, order_count, {segment, units, ...},
--           {ledger's last id, fence, cursor, seen; "" if it sells, lost}, {field, text, ...} of the transfers}
if redis.call('EXISTS', META) == 0 then
  return { 'missing' }
end
check_archived()
check_layout(redis.call('HGET', META, 'layout'))
local answer, last_id = pool_state(), ''
if redis.call('EXISTS', LEDGER) > 0 then
  local about = redis.call('XINFO', 'STREAM', LEDGER)
  for index = 1, #about, 2 do
    last_id = about[index] == 'last-generated-id' and about[index + 1] or last_id
  end
end
local more = redis.call('HMGET', META, 'fence', 'cursor', 'frozen', 'epoch', 'sequence', 'lost')
local behind = tonumber(seen_epoch) - (tonumber(more[4] or '') or 0)
if not more[3] and (behind > 0 or behind == 0 and (tonumber(more[5] or '') or 0) < tonumber(seen_sequence)) then
  more[3] = seen_epoch .. '-' .. seen_sequence
end
answer[#answer + 1] = { last_id, more[1] or '', more[2] or '', more[3] == '' and '?' or more[3] or '', more[6] or '0' }
answer[#answer + 1] = redis.call('HGETALL', TRANSFERS)
return answer
