#!lua flags=no-writes
-- uses shared/pool.lua
-- uses shared/outbox.lua
-- Count the orders that wait in the outbox.
-- ARGV     none
-- answers  {"outbox", orders, due (how many of them are), dead orders, ms since the first became due}
known_numbers()
local first = redis.call('ZRANGE', OUTBOX, 0, 0, 'WITHSCORES')
return { 'outbox', redis.call('ZCARD', OUTBOX), redis.call('ZCOUNT', OUTBOX, '-inf', now_ms), redis.call('HLEN', DEAD),
  digits(first[2] and math.max(0, now_ms - tonumber(first[2])) or 0) }
