#!lua
-- uses shared/pool.lua
-- Change a pool's number of segments while it sells, and split its free units evenly over them. Units are taken at the
-- grant, so the holder of a removed segment finishes undisturbed; units that it gives back go to another segment.
-- ARGV     1 segment_count
-- answers  {"missing"}   {"resized", state, replay}   state as read_pool answers it; replay "1": it had that many
local count = tonumber(ARGV[1])
local pool = read_pool()
if not pool then
  return { 'missing' }
end
if pool.segment_count == count then
  return { 'resized', pool_state(), is_further and redis.call('HGET', META, 'resized_by') == this_call and '0' or '1' }
end
local parts = even_parts(pool.available, count)
local base, extra = shares_of(pool.available, count)
append(pool, 'resized', pool_line('', pool.available, parts, ARGV[1])) -- first: if it fails, nothing has changed
redis.call('DEL', STOCK)
each_chunk(count, MANY, function(first, last)
  local fields = {}
  for segment = first, last do
    fields[#fields + 1] = segment
    fields[#fields + 1] = digits(base + (segment < extra and 1 or 0))
  end
  redis.call('HSET', STOCK, unpack(fields))
end)
each_chunk(pool.segment_count - count, MANY, function(first, last)
  local removed = {}
  for segment = count + first, count + last do
    removed[#removed + 1] = segment
  end
  redis.call('ZREM', FREE, unpack(removed))
end)
each_chunk(count - pool.segment_count, MANY, function(first, last)
  local locks, free = {}, {}
  for offset = first, last do
    locks[offset - first + 1] = lock_of(pool.segment_count + offset)
  end
  for index, holder in ipairs(redis.call('MGET', unpack(locks))) do
    -- of a holder from before the segment was removed
    local remaining_ms = holder and redis.call('PTTL', locks[index]) or 0
    free[2 * index - 1] = digits(now_ms + math.max(0, remaining_ms))
    free[2 * index] = pool.segment_count + first + index - 1
  end
  redis.call('ZADD', FREE, unpack(free))
end)
if count > pool.segment_count then
  redis.call('PUBLISH', FREED, 'freed')
end
pool.segment_count, pool.cursor = count, 0
redis.call('HSET', META, 'segment_count', ARGV[1], 'resized_by', this_call)
write_pool(pool)
return { 'resized', pool_state(), '0' }
