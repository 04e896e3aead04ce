#!lua flags=no-writes
-- uses shared/clock.lua
-- List pools that are due, longest ago first.
-- KEYS     1 the duty (zset: pool -> server ms)
-- ARGV     1 offset   2 limit
-- answers  {first_in_ms, {name, score, ...}}   first_in_ms: until the first will be due; "" if one is, or there is none
local first = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or now_ms)
if first > now_ms + 0.5 then
  return { digits(first - now_ms), {} }
end
return { '', redis.call('ZRANGE', KEYS[1], '-inf', string.format('%.1f', now_ms + 0.5), 'BYSCORE', 'LIMIT', ARGV[1],
  ARGV[2], 'WITHSCORES') }
