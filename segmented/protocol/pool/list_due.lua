#!lua flags=no-writes
-- uses shared/pool.lua
-- List orders whose hold has expired, longest ago first.
-- ARGV     1 limit
-- answers  {"due", order_id, ...}
read_pool()
local answer = redis.call('ZRANGE', HOLDS, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, ARGV[1])
table.insert(answer, 1, 'due')
return answer
