#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1
-- Bound the ledger: write a checkpoint of all numbers, and drop the entries before the newest checkpoint that leaves the
-- last `keep` changes. An audit begins at that checkpoint, so the ledger is never trimmed past it. Works when memory is
-- full. A checkpoint is written when the last one is a quarter of `keep` behind, so a repeat writes none. meta lists the
-- valid ones in `checkpoints`, and the one at which the ledger begins in `ledger_start`. Entries before it may still take
-- up memory: one step deletes 10,000 changes. A ledger that is relayed to a database (relay/note_relayed.lua) is trimmed
-- only behind what was relayed.
-- ARGV     1 keep (changes)   2 relayed_only ("1": delete only what was relayed, instead of refusing)
-- answers  {"unsound"}   the totals do not add up, and a checkpoint of them would hide the error from an audit
--          {"not_relayed", epoch, sequence, epoch, sequence}   relayed up to, and the last entry that would be deleted
--          {"trimmed", first sequence, sequence, more ("1": entries remain to be deleted)}
local DELETED_MAX = 10000
local keep, is_relayed_only = tonumber(ARGV[1]), ARGV[2] == '1'
local pool = read_pool()
local remembered = redis.call('HMGET', META, 'ledger_start', 'checkpoints', 'sent', 'received', 'relayed')
local start, checkpoints = tonumber(remembered[1] or '1'), {}
for sequence in string.gmatch(remembered[2] or '', '%d+') do
  checkpoints[#checkpoints + 1] = tonumber(sequence)
end

local function stock_parts()
  local parts, sum = {}, 0
  for first = 0, pool.segment_count - 1, MANY do
    local segments = {}
    for segment = first, math.min(first + MANY, pool.segment_count) - 1 do
      segments[#segments + 1] = segment
    end
    for index, count in ipairs(redis.call('HMGET', STOCK, unpack(segments))) do
      if count and count ~= '0' then
        parts[#parts + 1] = digits(segments[index]) .. ':' .. count
        sum = sum + tonumber(count)
      end
    end
  end
  return table.concat(parts, ','), sum
end

local parts, sum = stock_parts()
local sent, received = remembered[3] and whole(remembered[3]), remembered[4] and whole(remembered[4])
if not sent or not received or sum ~= pool.available
  or pool.opened + pool.restocked - pool.withdrawn + received - sent ~= pool.available + pool.reserved + pool.confirmed then
  return { 'unsound' }
end

-- where the ledger begins afterwards: at the newest checkpoint, the one to be written included, that leaves `keep` changes
local is_due = pool.sequence - (checkpoints[#checkpoints] or 0) >= math.max(1, math.floor(keep / 4))
if is_due then
  checkpoints[#checkpoints + 1] = pool.sequence + 1
end
local relayed = remembered[5] and (numbers_in(remembered[5]) or error(DRIFTED))
local newest = pool.sequence + (is_due and 1 or 0) - keep
if is_relayed_only then
  local is_in_epoch = relayed and relayed[1] == tonumber(pool.epoch)
  newest = is_in_epoch and math.min(newest, relayed[2] + 1) or 0
end
for _, sequence in ipairs(checkpoints) do
  if sequence <= newest and sequence > start then
    start = sequence
  end
end
local can_delete = true
if relayed then
  local last = redis.call('XREVRANGE', LEDGER, '(' .. pool.epoch .. '-' .. digits(start), '-', 'COUNT', 1)[1]
  local id = last and numbers_in(last[1])
  can_delete = not id or id[1] < relayed[1] or id[1] == relayed[1] and id[2] <= relayed[2]
  if not can_delete and not is_relayed_only then
    return { 'not_relayed', digits(relayed[1]), digits(relayed[2]), digits(id[1]), digits(id[2]) }
  end
end

if is_due then
  local note = table.concat({ digits(pool.segment_count), digits(pool.opened), digits(pool.restocked),
    digits(pool.withdrawn), digits(sent), digits(received), digits(pool.reserved), digits(pool.confirmed),
    pool.is_closed and '1' or '0', pool.chain }, ' ')
  append(pool, 'checkpoint', pool_line('', pool.available, parts, note))
  write_pool(pool)
end
local valid = {}
for _, sequence in ipairs(checkpoints) do
  if sequence >= start then
    valid[#valid + 1] = digits(sequence)
  end
end
redis.call('HSET', META, 'ledger_start', digits(start), 'checkpoints', table.concat(valid, ' '))

local oldest = redis.call('XRANGE', LEDGER, '-', '+', 'COUNT', 1)[1]
local is_more_left = false
if oldest and can_delete then
  local oldest_epoch, first = string.match(oldest[1], '^(%d+)%-(%d+)$')
  local up_to = math.min(start, tonumber(first) + DELETED_MAX)
  is_more_left = up_to < start
  if tonumber(first) < up_to then
    local epoch = is_more_left and oldest_epoch or pool.epoch
    redis.call('XTRIM', LEDGER, 'MINID', '=', epoch .. '-' .. digits(up_to))
  end
end
return { 'trimmed', digits(start), digits(pool.sequence), is_more_left and '1' or '0' }
