#!lua flags=allow-oom
-- numbers 1 2 3
-- Remove the note that a transfer is away, after it has arrived. A transfer of an earlier epoch, which the shard has
-- forgotten since, may have had the same number.
-- KEYS     1 transfers (hash; `away:<shard>`: number and units of the last transfer there)   2 meta (hash)
-- ARGV     1 target (number of a shard)   2 number   3 epoch
-- answers  1 if this transfer was away, otherwise 0
local away = redis.call('HGET', KEYS[1], 'away:' .. ARGV[1])
if away and string.match(away, '^%d+') == ARGV[2] and redis.call('HGET', KEYS[2], 'epoch') == ARGV[3] then
  return redis.call('HDEL', KEYS[1], 'away:' .. ARGV[1])
end
return 0
