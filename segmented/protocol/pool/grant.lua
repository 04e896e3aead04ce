#!lua
-- uses shared/pool.lua
-- uses shared/segments.lua
-- numbers 2:1:1000000000 6:1 7 9
-- Take units and the lock of a free segment in one step.
-- ARGV     1 order_id   2 quantity   3 customer_id ("" for none)   4 partial ("1": take what is left)
--          5 holder_id   6 ttl_ms   7 hold_ms   8 keep_refusal ("1": store "refused" as the order's final state, but
--          not while holds of a gated pool have ended that its database has still to decide)
--          9 above (a token that a resource has accepted: the new one is higher)
--          10 asked (shared/line.lua): "<bounds> <party>" of a process that waits, with "*" before the party if it has not
--          waited yet; "" of a caller that will not wait; absent for one that has not waited and keeps no place
-- answers  {line}         as reserve.lua has them: mismatch, settled, closed, nobody, limit, sold_out, busy, drifted
--          {"sold_out", available, reserved, sequence, epoch}   refused before, and kept
--          {"busy", sequence, free_in_ms, ahead}   no segment is free, or only for the processes ahead in the line
--          {"in_hand", sequence, free_in_ms}   another holder's lease on this order is alive
--          {"granted", epoch, segment, quantity, parts, fence, sequence, free_in_ms, replay}
local id, is_partial, holder_id = ARGV[1], ARGV[4] == '1', ARGV[5]
local request = { quantity = tonumber(ARGV[2]), customer = ARGV[3] }
local quantity, customer = request.quantity, request.customer
local ttl_ms, hold_ms, keeps_refusal = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
local above = tonumber(ARGV[9])
local line = segment_line(ARGV[10] or '*')
local hold_until = digits(now_ms + hold_ms)
local pool = read_pool()
check_texts({ id, customer })

local function granted(record, is_replay)
  local next_ms = free_in_ms()
  tell_following(line, math.max(0, tonumber(next_ms)))
  return { 'granted', pool.epoch, digits(record.segment), digits(record.quantity), record.parts, record.fence,
    digits(record.sequence), next_ms, is_replay and '1' or '0' }
end

-- 1. a known order
local record = read_order(id)
if record and record.state == 'v' then
  record = nil
end
local count, refused
local is_replay = record and true or false
if record then
  local mismatch = mismatch_of(record, quantity, customer)
  if mismatch then
    return { mismatch }
  end
  local own = own_change(pool, record.sequence)
  is_replay = not (own and own.kind == 'reserved') -- an earlier attempt of this call took the units
  if record.state == 'f' and own and pool.available < quantity then
    return { refusal_line(pool, 'sold_out') }
  end
  if record.state == 'f' then
    return { 'sold_out', digits(pool.available), digits(pool.reserved), digits(record.sequence), pool.epoch }
  end
  if record.state ~= 'r' then
    return { settled_line(record) }
  end
  if record.holder ~= '' then
    local lock = lock_of(record.segment)
    local holder = redis.call('GET', lock)
    if holder == holder_id and record.holder == holder_id then
      -- the same lease, its time restarted, because the caller counts it from this request
      if tonumber(record.fence) <= above then
        record.fence = next_fence(pool, above)
        append(pool, 'granted', line_of(id, record))
        record.sequence = pool.sequence
        redis.call('HSET', ORDERS, id, packed(record))
        write_pool(pool)
      end
      redis.call('PEXPIRE', lock, ttl_ms)
      note_free_at(pool, record.segment, now_ms + ttl_ms)
      redis.call('ZADD', HOLDS, 'GT', hold_until, id)
      return granted(record, is_replay)
    end
    if holder == record.holder then
      return { 'in_hand', digits(pool.sequence), digits(math.max(0, redis.call('PTTL', lock))) }
    end
  end
else
  local mismatch = queued_mismatch(id, quantity, customer)
  if mismatch then
    return { mismatch }
  end
  -- 2. too few units: exact, independent of the locks
  count, refused = allowed(pool, quantity, customer, is_partial)
  local may_come_back = pool.is_gated and refused == 'sold_out' and first_end() == '0' -- once the database has decided
  if refused == 'sold_out' and keeps_refusal and not may_come_back then
    record = new_record('f', request)
    append(pool, 'refused', line_of(id, record))
    record.sequence = pool.sequence
    redis.call('HSET', ORDERS, id, packed(record))
    leave_outbox({ id })
    write_pool(pool)
    pass_turn(line, pool.line, now_us, 0)
    return { refusal_line(pool, refused) }
  end
  if refused then
    if due_so_far > 0 then
      write_pool(pool)
    end
    if refused ~= 'busy' then
      pass_turn(line, pool.line, now_us, 0)
    end
    return { refusal_line(pool, refused) }
  end
end

-- 3. a free segment
local segment, busy_ms, ahead = take_segment_in_turn(pool, line, holder_id, ARGV[6])
if not segment then
  if due_so_far > 0 then
    write_pool(pool)
  end
  return { 'busy', digits(pool.sequence), busy_ms, ahead }
end

-- 4. units, from this segment first
local fence = next_fence(pool, above)
if record then
  local parts = record.parts == '' and digits(record.segment) .. ':' .. digits(record.quantity) or record.parts
  record.parts = parts == digits(segment) .. ':' .. digits(record.quantity) and '' or parts
  record.segment, record.holder, record.fence = segment, holder_id, fence
  append(pool, 'granted', line_of(id, record))
else
  local first, parts = gather(pool, segment, count)
  if not first then
    redis.call('DEL', lock_of(segment))
    if due_so_far > 0 then
      write_pool(pool)
    end
    tell_following(line, 0)
    return { 'drifted' }
  end
  if parts == '' and first ~= segment then
    parts = digits(first) .. ':' .. digits(count)
  end
  record = new_record('r', request)
  record.quantity, record.asked = count, count < quantity and digits(quantity) or ''
  record.segment, record.parts, record.holder, record.fence = segment, parts, holder_id, fence
  pool.available, pool.reserved = pool.available - count, pool.reserved + count
  add_bought(pool, customer, count)
  append(pool, 'reserved', line_of(id, record))
end
record.sequence = pool.sequence
note_free_at(pool, segment, now_ms + ttl_ms)
redis.call('HSET', ORDERS, id, packed(record))
redis.call('ZADD', HOLDS, 'GT', hold_until, id)
write_pool(pool)
return granted(record, is_replay)
