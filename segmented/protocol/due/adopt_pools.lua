#!lua flags=allow-oom
-- Enter the pools that a process of an earlier release noted for the sweep.
-- KEYS     1 outboxes (set)   2 sweep   3 to 7 the other duties (zsets: pool -> server ms)
-- ARGV     1 mark (behind the sku in a shard's name)
-- answers  how many there are
local time = redis.call('TIME')
local now = string.format('%.1f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + 0.5)
local names = redis.call('SMEMBERS', KEYS[1])
for index = 2, #KEYS do
  redis.call('ZCARD', KEYS[index]) -- a key of another type fails here, before the first write
end
for _, name in ipairs(names) do
  local mark = string.find(name, ARGV[1], 1, true)
  redis.call('ZADD', KEYS[2], 'NX', now, name)
  for index = 3, #KEYS do
    redis.call('ZADD', KEYS[index], 'NX', now, mark and string.sub(name, 1, mark - 1) or name)
  end
end
return #names
