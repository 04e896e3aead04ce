#!lua flags=allow-oom
-- numbers 1 2
-- Note the epoch of another shard, which is about to be thawed in it: from now on no units of a transfer from an earlier
-- epoch of that shard arrive here. This also works in a frozen shard, whose units stay unchanged.
-- KEYS     1 meta (hash)   2 transfers (hash; `epoch:<shard>`: the latest epoch noted of that shard)
-- ARGV     1 source (number of a shard)   2 epoch
-- answers  {"noted", the epoch noted before, 0 if none}
local field = 'epoch:' .. ARGV[1]
local before = redis.call('HGET', KEYS[2], field) or '0'
if redis.call('HEXISTS', KEYS[1], 'epoch') == 0 then
  error({ err = 'MISSING' })
end
if not string.match(before, '^%d+$') or #before > 15 then
  error({ err = 'DRIFTED the epoch that was noted before cannot be read' })
end
if tonumber(before) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[2], field, ARGV[2])
end
return { 'noted', before }
