#!lua flags=allow-oom
-- uses shared/line.lua
-- Take a process that waits no more out of the line, and wake the next one if it was its turn. Takes nothing, and is safe
-- to run twice, and before an attempt of the same process that is late: such an attempt only keeps a place again.
-- KEYS     1 lock (of a plain or a reentrant lock: string or hash with PX)   2 notes (hash: line)   3 freed (channel)
--          4 line (zset with PX: a waiting process -> server us at which it began to wait)
-- ARGV     1 asked: see shared/line.lua
-- answers  1 if the process had a place, else 0
local line = open_line(KEYS[4], KEYS[2], KEYS[3], ARGV[1])
local time, kind = redis.call('TIME'), redis.call('TYPE', KEYS[1]).ok
local at_us = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- of a semaphore and a pool, the next process finds out itself whether something is free
local is_held = kind == 'string' or kind == 'hash'
local free_in_ms = is_held and math.max(0, redis.call('PTTL', KEYS[1])) or 0
local before = redis.pcall('ZSCORE', KEYS[4], line.party)
pass_turn(line, redis.call('HGET', KEYS[2], 'line'), at_us, free_in_ms)
redis.pcall('ZREM', KEYS[4], line.party)
return type(before) == 'string' and 1 or 0
