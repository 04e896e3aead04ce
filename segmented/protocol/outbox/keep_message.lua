#!lua
-- numbers 2
-- Keep a message that no worker could read: once, and only up to a maximum number of them.
-- KEYS     1 kept (hash: digest -> ms, reason, text, with tabs between them)
-- ARGV     1 digest   2 maximum   3 reason (one line, no tabs)   4 text
-- answers  1 kept, now or before; 0: too many are kept
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 1
end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
local time = redis.call('TIME')
local now_ms = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('HSET', KEYS[1], ARGV[1], now_ms .. '\t' .. ARGV[3] .. '\t' .. ARGV[4])
return 1
