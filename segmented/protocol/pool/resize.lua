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
  return { 'resized', pool_state(), '1' }
end
local parts = even_parts(pool.available, count)
local shares = {}
for segment, share in string.gmatch(parts, '(%d+):(%d+)') do
  shares[tonumber(segment)] = share
end
append(pool, 'resized', pool_line('', pool.available, parts, ARGV[1])) -- first: if it fails, nothing has changed
redis.call('DEL', STOCK)
for first = 0, count - 1, MANY do
  local fields = {}
  for segment = first, math.min(first + MANY, count) - 1 do
    fields[#fields + 1] = segment
    fields[#fields + 1] = shares[segment] or '0'
  end
  redis.call('HSET', STOCK, unpack(fields))
end
for segment = count, pool.segment_count - 1 do
  redis.call('ZREM', FREE, segment)
end
for segment = pool.segment_count, count - 1 do
  local remaining_ms = redis.call('PTTL', lock_of(segment)) -- of a holder from before the segment was removed
  redis.call('ZADD', FREE, digits(now_ms + math.max(0, remaining_ms)), segment)
end
if count > pool.segment_count then
  redis.call('PUBLISH', FREED, 'freed')
end
pool.segment_count, pool.cursor = count, 0
redis.call('HSET', META, 'segment_count', ARGV[1])
write_pool(pool)
return { 'resized', pool_state(), '0' }
