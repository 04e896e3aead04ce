#!lua flags=no-writes
-- uses shared/seen.lua
-- Find a lease by its holder id, for another process that takes it over.
-- KEYS     1 lock   2 fence   3 freed (unused)
-- ARGV     1 holder_id   2 delay_ms
-- answers  {"held", remaining_ms; -1 if the key never expires, token}   {"lost"}
--          {"wrong_kind"} if a fair lock has the name, whose key looks the same
local lock, fence, holder_id, delay_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if redis.call('GET', lock) ~= holder_id then
  return { 'lost' }
end
local noted = redis.call('HMGET', fence, 'token', 'kind', 'holder')
if noted[2] == 'fair' and noted[3] == holder_id then
  return { 'wrong_kind' }
end
local remaining_ms = redis.call('PTTL', lock)
if remaining_ms >= 0 then
  remaining_ms = remaining_ms - delay_ms
  if remaining_ms <= 0 then -- the lease is over, and only its delay runs
    return { 'lost' }
  end
end
-- the fence may have expired under a lease renewed for a day: the clock exceeds all earlier tokens, and the next exceeds it
local token = noted[1]
if not token then
  local time = redis.call('TIME')
  token = string.format('%.0f', math.max(tonumber(seen_token), tonumber(time[1]) * 1000000 + tonumber(time[2])))
end
return { 'held', string.format('%.0f', remaining_ms), token }
