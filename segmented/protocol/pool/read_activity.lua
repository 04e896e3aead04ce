#!lua flags=no-writes
-- uses shared/pool.lua
-- Read what moves while a pool sells: held segments, processes that wait for one, holds that end, and the outbox.
-- ARGV     1 soon_ms
-- answers  {"activity", a digit for each segment: 1 if its lock is held, processes that wait for a segment, holds that have
--           ended, holds that end within soon_ms, orders in the outbox, how many of them are due, ms since the first became
--           due, dead orders}
local pool = known_numbers() -- that of a frozen pool is readable, too
local held = {}
each_chunk(pool.segment_count, MANY, function(first, last)
  for _, holder in ipairs(lock_holders(first, last)) do
    held[#held + 1] = holder and '1' or '0'
  end
end)
local due = redis.call('ZRANGE', OUTBOX, 0, 0, 'WITHSCORES')[2]
return { 'activity', table.concat(held), redis.call('ZCARD', LOCK .. ':line'), redis.call('ZCOUNT', HOLDS, '-inf', now_ms),
  redis.call('ZCOUNT', HOLDS, '(' .. digits(now_ms), digits(now_ms + tonumber(ARGV[1]))), redis.call('ZCARD', OUTBOX),
  redis.call('ZCOUNT', OUTBOX, '-inf', now_ms), digits(due and math.max(0, now_ms - tonumber(due)) or 0),
  redis.call('HLEN', DEAD) }
