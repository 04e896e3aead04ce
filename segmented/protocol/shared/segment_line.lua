-- uses shared/segments.lua
-- uses shared/line.lua
-- Shared by the scripts that take a segment in turn with other processes.
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
  if not line.party then
    return nil, left_ms and digits(left_ms) or free_in_ms(), '0'
  end
  if left_ms then
    local left, ahead = wait_behind(line, pool.line, now_us, left_ms)
    return nil, digits(left), digits(ahead)
  end
  return nil, free_in_ms(), digits(keep_place(line, pool.line, now_us, true))
end
