#!lua flags=no-writes
-- Read the messages that no worker could read.
-- KEYS     1 kept (hash: digest -> ms, reason, text, with tabs between them)
-- ARGV     none
-- answers  {ms now, {digest, kept, ...}}
local time = redis.call('TIME')
local now_ms = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
return { now_ms, redis.call('HGETALL', KEYS[1]) }
