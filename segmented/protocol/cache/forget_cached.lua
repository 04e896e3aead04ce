#!lua flags=allow-oom
-- Drop a cached value, and refuse writes by the current and all earlier holders of the lock. Safe to run twice.
-- KEYS     1 lock (unused)   2 fence (hash with PX: token, kept)   3 freed (unused)   4 cached
-- ARGV     none
-- answers  {"forgotten", "1" if a value was cached, else "0"}
local fence, cached = KEYS[2], KEYS[4]
local last = redis.call('HGET', fence, 'token')
if last then
  redis.call('HSET', fence, 'kept', string.format('%.0f', tonumber(last) + 1))
end
return { 'forgotten', tostring(redis.call('DEL', cached)) }
