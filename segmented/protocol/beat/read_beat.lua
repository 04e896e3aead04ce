#!lua flags=no-writes
-- Read the whole schedule.
-- KEYS     1 leader (hash: token, version)   2 entries (hash: name -> definition)   3 runs (hash: name -> state)
-- ARGV     none
-- answers  {now_ms, version, entries, runs}: the last two are lists of names and texts
local time = redis.call('TIME')
local now_ms = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local version = redis.call('HGET', KEYS[1], 'version') or '0'
return { now_ms, version, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]) }
