#!lua flags=no-writes
-- uses shared/clock.lua
-- Read the messages that no worker could read.
-- KEYS     1 kept (hash: digest -> ms, reason, text, with tabs between them)
-- ARGV     none
-- answers  {ms now, {digest, kept, ...}}
return { digits(now_ms), redis.call('HGETALL', KEYS[1]) }
