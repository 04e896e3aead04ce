#!lua flags=no-writes
-- uses shared/pool.lua
-- Read totals, sequence number and units by segment in one step, even if another program has overwritten them.
-- ARGV     none
-- answers  {"pool", epoch, segment_count, gated, sequence, opened, available, reserved, confirmed, restocked,
--           withdrawn, sent, received, customer_limit, closed, order_count, {segment, units, ...}, profile, sale_id, queue, step,
--           {ledger's last id, fence, cursor, seen; "" if it sells, lost, relayed; "" if never, age in ms of the oldest
--            entry that is not relayed; 0 if all are, records forgotten; "" if it keeps all}, {field, text, ...} of the transfers}
if redis.call('EXISTS', META) == 0 then
  error(MISSING)
end
check_archived()
check_layout(redis.call('HGET', META, 'layout'))
local answer = pool_state()
local more = redis.call('HMGET', META, 'fence', 'cursor', 'frozen', 'epoch', 'sequence', 'lost', 'servers', 'relayed',
  'forgotten')
if not more[3] and lacks_seen(tonumber(more[4] or '') or 0, tonumber(more[5] or '') or 0, more[7] or '') then
  more[3] = seen_epoch .. '-' .. seen_sequence
elseif not more[3] and missing_key(whole(answer[8] or '') or 0, whole(answer[9] or '') or 0) then
  more[3] = (more[4] or '') .. '-' .. (more[5] or '')
end
local relayed, age_ms = more[8] or '', 0
if string.match(relayed, '^%d+%-%d+$') and #relayed < 32 then
  local oldest = redis.pcall('XRANGE', LEDGER, '(' .. relayed, '+', 'COUNT', 1)[1]
  local at_us = whole(by_name(oldest and oldest[2] or {}).at_us or '')
  if at_us then
    age_ms = math.max(0, now_ms - math.floor(at_us / 1000))
  end
end
answer[#answer + 1] = { last_id(), more[1] or '', more[2] or '', more[3] == '' and '?' or more[3] or '', more[6] or '0',
  relayed, digits(age_ms), more[9] or '' }
answer[#answer + 1] = redis.call('HGETALL', TRANSFERS)
return answer
