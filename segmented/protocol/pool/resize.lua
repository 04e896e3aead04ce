#!lua
-- uses shared/pool.lua
-- numbers 1:1:4096
-- Change a pool's number of segments while it sells, and split its free units evenly over them. Units are taken at the
-- grant, so the holder of a removed segment finishes undisturbed; units that it gives back go to another segment.
-- ARGV     1 segment_count
-- answers  {"resized", state, replay}   state as read_pool answers it, but with "even" for the units, if they
--            were split now; replay "1": it had that many segments, and not from an earlier attempt of this call
local count = tonumber(ARGV[1])
local pool = read_pool()
if pool.segment_count == count then
  return { 'resized', pool_state(), is_further and redis.call('HGET', META, 'resized_by') == this_call and '0' or '1' }
end
-- Segments from here on have never been there, so that no holder of before can have their locks.
local most = math.max(pool.segment_count, tonumber(redis.call('HGET', META, 'segments_most') or '0') or 0)
local parts = even_parts(pool.available, count)
append(pool, 'resized', pool_line('', pool.available, parts, ARGV[1])) -- first: if it fails, nothing has changed
redis.call('DEL', STOCK)
write_stock(pool.available, count)
local now = digits(now_ms)
each_chunk(pool.segment_count - count, MANY, function(first, last)
  local removed = {}
  for offset = first, last do
    removed[offset - first + 1] = count + offset
  end
  redis.call('ZREM', FREE, unpack(removed))
end)

-- When segments from before the pool had fewer may be free.
local function free_again(first, last)
  local free = {}
  for index, holder in ipairs(lock_holders(first, last)) do
    local segment = first + index - 1
    free[2 * index - 1] = holder and digits(now_ms + math.max(0, redis.call('PTTL', lock_of(segment)))) or now
    free[2 * index] = segment
  end
  return free
end

each_chunk(count - pool.segment_count, MANY, function(first, last)
  first, last = pool.segment_count + first, pool.segment_count + last
  local free = first < most and free_again(first, math.min(last, most - 1)) or {}
  local size = #free
  for segment = math.max(first, most), last do
    free[size + 1], free[size + 2], size = now, segment, size + 2
  end
  redis.call('ZADD', FREE, unpack(free))
end)
if count > pool.segment_count then
  redis.pcall('PUBLISH', FREED, 'freed')
end
pool.segment_count, pool.cursor = count, 0
redis.call('HSET', META, 'segment_count', ARGV[1], 'segments_most', digits(math.max(most, count)), 'resized_by', this_call)
write_pool(pool)
return { 'resized', pool_state(true), '0' }
