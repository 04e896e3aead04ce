-- uses shared/line.lua
-- Shared by the scripts that take a segment's lock: the hint proposes, SET NX decides, and a full scan precedes busy. The
-- scan finds locks that vanished without a word, by DEL or FLUSHALL. Of a pool with many segments it takes milliseconds, so
-- it is made a few times a second: a field `scanned` of `meta` has the server's milliseconds of the last one.
local take_free_segment

do -- for Lua allows 200 local variables at once
  local PROBES_MAX = 16
  local LOOK_AGAIN_MS = 1000
  local SCANNED_ALWAYS_MAX = 128
  local SCAN_AGAIN_MS = 200

  local function take_lock(segment, holder_id, ttl_ms)
    local lock = lock_of(segment)
    local done = redis.call('SET', lock, holder_id, 'NX', 'PX', ttl_ms)
    taken_lock = done and lock or taken_lock
    return done
  end

  -- Return a segment or nil, and then whether the hint proposes more.
  local function free_segment_by_hint(pool, holder_id, ttl_ms)
    local proposed = redis.call('ZRANGE', FREE, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, PROBES_MAX)
    for _, segment in ipairs(proposed) do
      segment = tonumber(segment)
      if take_lock(segment, holder_id, ttl_ms) then
        return segment
      end
      -- another lock client has it: remember until when; a lock without an end is freed silently, so check periodically
      local remaining_ms = redis.call('PTTL', lock_of(segment))
      note_free_at(pool, segment, now_ms + (remaining_ms < 0 and LOOK_AGAIN_MS or math.max(1, remaining_ms)))
    end
    return nil, #proposed == PROBES_MAX
  end

  local function free_segment_by_scan(pool, holder_id, ttl_ms)
    for first = 0, pool.segment_count - 1, MANY do
      for index, holder in ipairs(lock_holders(first, math.min(first + MANY, pool.segment_count) - 1)) do
        if not holder and take_lock(first + index - 1, holder_id, ttl_ms) then
          return first + index - 1
        end
      end
    end
  end

  local function is_scan_due(pool)
    if pool.segment_count <= SCANNED_ALWAYS_MAX then
      return true
    end
    local last_ms = tonumber(redis.call('HGET', META, 'scanned') or '0') or 0
    local is_due = now_ms < last_ms or now_ms >= last_ms + SCAN_AGAIN_MS
    if is_due then
      redis.call('HSET', META, 'scanned', digits(now_ms))
    end
    return is_due
  end

  -- Take a free segment for the holder: return it, or nil.
  function take_free_segment(pool, holder_id, ttl_ms)
    local segment, has_more = free_segment_by_hint(pool, holder_id, ttl_ms)
    if not segment and (has_more or is_scan_due(pool)) then
      segment = free_segment_by_scan(pool, holder_id, ttl_ms)
    end
    return segment
  end
end

-- The line of the processes that wait for a segment, as the caller asks.
local function segment_line(asked)
  return open_line(LOCK .. ':line', META, FREED, asked)
end

-- Take a free segment for the holder, if it is the caller's turn: return it, or nil, the answer's free_in_ms, and of a
-- caller that waits how many processes are ahead.
local function take_segment_in_turn(pool, line, holder_id, ttl_ms)
  local segment, left_ms = take_free_segment(pool, holder_id, ttl_ms), nil
  if segment then
    local free_count = pool.line and redis.call('ZCOUNT', FREE, '-inf', now_ms)
    left_ms = left_to_first(line, pool.line, now_us, pool.segment_count, free_count)
    if not left_ms then
      return segment
    end
    redis.call('DEL', lock_of(segment))
  end
  if left_ms then
    local left, ahead = wait_behind(line, pool.line, now_us, left_ms)
    return nil, digits(left), digits(ahead or 0)
  end
  return nil, free_in_ms(), line.party and digits(keep_place(line, pool.line, now_us, true)) or '0'
end
