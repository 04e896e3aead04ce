#!lua flags=allow-oom
-- Take a pool out of the index, and of the pools that orders were submitted to.
-- KEYS     1 outboxes (set)   2 sweep   3 to 7 the other duties (zsets: pool -> server ms)
--          8 holds (hash: pool -> shortest_ms until_ms)
-- ARGV     1 name of the pool or shard   2 its sku
-- answers  1
redis.call('HLEN', KEYS[8])
for index = 2, 7 do
  redis.call('ZCARD', KEYS[index]) -- a key of another type fails here, before the first write
end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[2])
for index = 3, 7 do
  redis.call('ZREM', KEYS[index], ARGV[2])
end
return 1
