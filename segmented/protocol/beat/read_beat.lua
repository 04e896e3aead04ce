#!lua flags=no-writes
-- uses shared/clock.lua
-- Read the whole schedule.
-- KEYS     1 leader (hash: token, version)   2 entries (hash: name -> definition)   3 runs (hash: name -> state)
-- ARGV     none
-- answers  {now_ms, version, entries, runs}: the last two are lists of names and texts
local version = redis.call('HGET', KEYS[1], 'version') or '0'
return { digits(now_ms), version, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]) }
