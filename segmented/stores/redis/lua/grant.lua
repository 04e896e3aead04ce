#!lua
-- uses shared/pool.lua
-- Take units and the lock of a free segment in one step.
-- ARGV     1 order_id   2 quantity   3 customer_id ("" for none)   4 fingerprint   5 holder_id   6 ttl_ms   7 hold_ms
--          8 keep_refusal ("1": store "refused" as the order's final state)
-- answers  {"missing"}    the pool is not open
--          {"mismatch"}   the id exists with other content
--          {"settled", state, quantity, segment, fence, sequence, "1"}   decided before
--          {"sold_out", available, reserved, sequence, replay}
--          {"busy", sequence, free_in_ms}   no segment is free, or more holds are due than one step gives back
--          {"in_hand", sequence, free_in_ms}   another holder's lease on this order lives
--          {"granted", epoch, segment, parts, fence, sequence, free_in_ms, replay}
local id, quantity, holder_id = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local ttl_ms, hold_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local found = redis.call('HMGET', META, 'epoch', 'segment_count', 'gated', 'sequence', 'available', 'reserved')
if not found[1] then
  return { 'missing' }
end
local epoch, segment_count = found[1], tonumber(found[2])

local function granted(record, replay)
  return { 'granted', epoch, digits(record.segment), parts_text(record.parts), record.fence, digits(record.sequence),
    free_in_ms(), replay }
end

-- 1. a known order
local record = read_order(id)
if record then
  if record.fingerprint ~= ARGV[4] then
    return { 'mismatch' }
  end
  if record.state == 'refused' then
    return { 'sold_out', found[5], found[6], digits(record.sequence), '1' }
  end
  if record.state ~= 'reserved' then
    return settled(record, '1')
  end
  if record.holder then
    local lock = lock_of(digits(record.segment))
    local holder = redis.call('GET', lock)
    if holder == holder_id and record.holder == holder_id then
      -- the same lease, its life counted anew, because the caller counts it from this request
      redis.call('PEXPIRE', lock, ttl_ms)
      redis.call('ZADD', FREE, now_ms + ttl_ms, digits(record.segment))
      record.hold_until = math.max(record.hold_until, now_ms + hold_ms)
      redis.call('ZADD', HOLDS, record.hold_until, id)
      write_order(id, record)
      return granted(record, '1')
    end
    if holder == record.holder then
      return { 'in_hand', found[4], digits(math.max(0, redis.call('PTTL', lock))) }
    end
  end
else
  -- 2. too few units: exact, whatever the locks are doing
  local refusal = refusal_for_want_of_units(quantity, found[3] == '1')
  if refusal and refusal[1] == 'sold_out' and ARGV[8] == '1' then
    record = { state = 'refused', quantity = quantity, fingerprint = ARGV[4], hold_until = 0,
      customer = ARGV[3] ~= '' and ARGV[3] or nil }
    record.sequence = append('refused', id, record)
    write_order(id, record)
    refusal[4] = digits(record.sequence)
  end
  if refusal then
    return refusal
  end
end

-- 3. a free segment: the hint proposes, SET NX decides, and a full look comes before Busy
local function take_lock(segment)
  return redis.call('SET', lock_of(segment), holder_id, 'NX', 'PX', ARGV[6])
end

local function free_segment_by_hint()
  local proposed = redis.call('ZRANGE', FREE, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, PROBES_MAX)
  for _, segment in ipairs(proposed) do
    if take_lock(segment) then
      return segment
    end
    -- another lock client has it: remember until when; one without an end goes without a word, so look now and then
    local remaining_ms = redis.call('PTTL', lock_of(segment))
    redis.call('ZADD', FREE, now_ms + (remaining_ms < 0 and LOOK_AGAIN_MS or math.max(1, remaining_ms)), segment)
  end
end

local function free_segment_by_looking()
  for first = 0, segment_count - 1, MANY do
    local locks = {}
    for segment = first, math.min(first + MANY, segment_count) - 1 do
      locks[#locks + 1] = lock_of(digits(segment))
    end
    for index, holder in ipairs(redis.call('MGET', unpack(locks))) do
      local segment = digits(first + index - 1)
      if not holder and take_lock(segment) then
        return segment
      end
    end
  end
end

local segment = free_segment_by_hint() or free_segment_by_looking()
if not segment then
  return { 'busy', redis.call('HGET', META, 'sequence'), free_in_ms() }
end

-- 4. units, from this segment first
local fence = digits(tonumber(epoch) * 4294967296 + redis.call('HINCRBY', META, 'fence', 1))
redis.call('ZADD', FREE, now_ms + ttl_ms, segment)
if record then
  record.segment, record.holder, record.fence = tonumber(segment), holder_id, fence
  record.hold_until = math.max(record.hold_until, now_ms + hold_ms)
  redis.call('ZADD', HOLDS, record.hold_until, id)
  record.sequence = append('granted', id, record)
  write_order(id, record)
  return granted(record, '1')
end
record = { quantity = quantity, segment = tonumber(segment), parts = gather(tonumber(segment), quantity, segment_count),
  holder = holder_id, fence = fence, hold_until = now_ms + hold_ms, customer = ARGV[3] ~= '' and ARGV[3] or nil,
  fingerprint = ARGV[4] }
take(id, record)
return granted(record, '0')
