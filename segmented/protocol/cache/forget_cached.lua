#!lua flags=allow-oom
-- Drop a cached value, and refuse writes by the current and all earlier holders of the lock. Safe to run twice.
-- KEYS     1 lock (unused)   2 fence (hash with PX: token, kept)   3 freed (unused)   4 cached
-- ARGV     none, or 1 kind   2 body: drop this value only
-- answers  {"forgotten", "1" if a value was cached, else "0"}
local fence, cached = KEYS[2], KEYS[4]
if ARGV[1] then
  local found = redis.call('HMGET', cached, 'kind', 'body')
  if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then
    return { 'forgotten', '0' }
  end
end
local last = redis.call('HGET', fence, 'token')
if last then
  redis.call('HSET', fence, 'kept', string.format('%.0f', tonumber(last) + 1))
end
return { 'forgotten', tostring(redis.call('DEL', cached)) }
