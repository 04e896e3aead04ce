#!lua flags=allow-oom
-- Drop the note that a transfer is away, once it has arrived.
-- KEYS     1 transfers (hash; `away:<shard>`: number and units of the last transfer there)
-- ARGV     1 target (number of a shard)   2 number
-- answers  1 if it was away, 0 if not or if another one is
local away = redis.call('HGET', KEYS[1], 'away:' .. ARGV[1])
if away and string.match(away, '^%d+') == ARGV[2] then
  return redis.call('HDEL', KEYS[1], 'away:' .. ARGV[1])
end
return 0
