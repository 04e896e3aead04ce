-- Shared by every pool script: names for KEYS, the record, the ledger, and giving units back.
-- KEYS  1 meta (hash)   2 stock (hash: segment -> units)   3 free (zset: segment -> ms at which it is free; a hint)
--       4 orders (hash: order id -> JSON record)   5 holds (zset: order id -> ms)   6 ledger (stream)
--       7 lock (prefix: <lock>:<segment> is a string with PX that holds the holder id)   8 freed (channel)
-- A record is {state, quantity, segment, parts = {{segment, units}, ...}, holder, fence, hold_until, customer,
-- fingerprint, sequence}; fence is a string, because JSON numbers keep 14 digits.
local META, STOCK, FREE, ORDERS, HOLDS, LEDGER, LOCK, FREED =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local PROBES_MAX = 16
local MANY = 1000
local LOOK_AGAIN_MS = 1000

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

-- A script does not roll back: a key of the wrong type must fail here, not at the fifth write. (meta, orders and the
-- order's own lock are read before any write as it is.)
redis.call('HLEN', STOCK)
redis.call('ZCARD', FREE)
redis.call('ZCARD', HOLDS)
redis.call('XLEN', LEDGER)

local function digits(number)
  return string.format('%.0f', number)
end

local function lock_of(segment)
  return LOCK .. ':' .. segment
end

local function read_order(id)
  local raw = redis.call('HGET', ORDERS, id)
  return raw and cjson.decode(raw)
end

local function write_order(id, record)
  redis.call('HSET', ORDERS, id, cjson.encode(record))
end

local function parts_text(parts)
  local texts = {}
  for index, part in ipairs(parts or {}) do
    texts[index] = digits(part[1]) .. ':' .. digits(part[2])
  end
  return table.concat(texts, ',')
end

-- One ledger entry, under the next sequence number, which is returned.
local function append(kind, id, record)
  local epoch = redis.call('HGET', META, 'epoch')
  local sequence = redis.call('HINCRBY', META, 'sequence', 1)
  redis.call('XADD', LEDGER, epoch .. '-' .. digits(sequence),
    'kind', kind, 'at_us', digits(now_us), 'order', id, 'quantity', digits(record.quantity),
    'parts', parts_text(record.parts), 'segment', record.segment and digits(record.segment) or '',
    'fence', record.fence or '')
  return sequence
end

-- Milliseconds until some segment may be free, by the hint; -1 when there is no hint.
local function free_in_ms()
  local first = redis.call('ZRANGE', FREE, 0, 0, 'WITHSCORES')
  if #first == 0 then
    return '-1'
  end
  return digits(math.max(0, tonumber(first[2]) - now_ms))
end

local function has_lease(record)
  return record.holder and redis.call('GET', lock_of(digits(record.segment))) == record.holder
end

local function free_segment(record)
  redis.call('DEL', lock_of(digits(record.segment)))
  redis.call('ZADD', FREE, now_ms, digits(record.segment))
  redis.call('PUBLISH', FREED, 'freed')
end

-- End a reservation: `state` is confirmed, cancelled or expired. The caller has checked that it is reserved.
local function settle(id, record, state, keeps_segment)
  local holds_segment = not keeps_segment and has_lease(record)
  if state == 'confirmed' then
    redis.call('HINCRBY', META, 'confirmed', record.quantity)
  else
    for _, part in ipairs(record.parts) do
      redis.call('HINCRBY', STOCK, digits(part[1]), part[2])
    end
    redis.call('HINCRBY', META, 'available', record.quantity)
  end
  redis.call('HINCRBY', META, 'reserved', -record.quantity)
  redis.call('ZREM', HOLDS, id)
  if holds_segment then
    free_segment(record)
  end
  record.state = state
  record.sequence = append(state, id, record)
  write_order(id, record)
end

local function settled(record, replay)
  return { 'settled', record.state, digits(record.quantity), record.segment and digits(record.segment) or '-1',
    record.fence or '', digits(record.sequence), replay }
end

-- Return what a lapsed hold kept, at most `limit` orders; true when more are due.
local function expire_due(limit)
  local due = redis.call('ZRANGE', HOLDS, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit + 1)
  for index = 1, math.min(limit, #due) do
    settle(due[index], read_order(due[index]), 'expired')
  end
  return #due > limit
end

-- Which units an order takes: first from `start`, then from any other segment, locked or not. Reads only; the caller
-- has checked that enough are free.
local function gather(start, quantity, segment_count)
  local own = tonumber(redis.call('HGET', STOCK, digits(start)) or '0')
  if own >= quantity then
    return { { start, quantity } }
  end
  local units = {}
  local flat = redis.call('HGETALL', STOCK)
  for index = 1, #flat, 2 do
    units[tonumber(flat[index])] = tonumber(flat[index + 1])
  end
  local parts, needed = {}, quantity
  for step = 0, segment_count - 1 do
    local segment = (start + step) % segment_count
    local taken = math.min(units[segment] or 0, needed)
    if taken > 0 then
      parts[#parts + 1] = { segment, taken }
      needed = needed - taken
    end
    if needed == 0 then
      break
    end
  end
  return parts
end

-- Move units from available to reserved, keep the record, say so in the ledger.
local function take(id, record)
  for _, part in ipairs(record.parts) do
    redis.call('HINCRBY', STOCK, digits(part[1]), -part[2])
  end
  redis.call('HINCRBY', META, 'available', -record.quantity)
  redis.call('HINCRBY', META, 'reserved', record.quantity)
  redis.call('ZADD', HOLDS, record.hold_until, id)
  record.state = 'reserved'
  record.sequence = append('reserved', id, record)
  write_order(id, record)
end

-- Is there room for `quantity`? Answers nil when there is, else the refusal. Due holds come back first, unless a
-- database decides their fate.
local function refusal_for_want_of_units(quantity, gated)
  local available = tonumber(redis.call('HGET', META, 'available'))
  if available >= quantity then
    return nil
  end
  if not gated then
    local more = expire_due(PROBES_MAX)
    available = tonumber(redis.call('HGET', META, 'available'))
    if available >= quantity then
      return nil
    end
    if more then
      return { 'busy', redis.call('HGET', META, 'sequence'), '0' }
    end
  end
  local found = redis.call('HMGET', META, 'reserved', 'sequence')
  return { 'sold_out', digits(available), found[1], found[2], '0' }
end

-- Totals, sequence number and units a segment: the answer of read_pool, and part of open_pool's.
local function pool_state()
  local answer = { 'pool' }
  local found = redis.call('HMGET', META, 'epoch', 'segment_count', 'gated', 'sequence', 'opened', 'available',
    'reserved', 'confirmed')
  for index = 1, #found do
    answer[index + 1] = found[index]
  end
  answer[#answer + 1] = digits(redis.call('HLEN', ORDERS))
  answer[#answer + 1] = redis.call('HGETALL', STOCK)
  return answer
end
