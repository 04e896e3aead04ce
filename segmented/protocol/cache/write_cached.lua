#!lua
-- Keep a value, unless one with a newer token was kept or it was forgotten since the token was granted. Safe to run
-- twice: a repeat keeps the same value again.
-- KEYS     1 lock (string: holder id)   2 fence (hash with PX: token, kept)   3 freed (channel)
--          4 cached (hash with PX: kind, body, refresh_at)
-- ARGV     1 holder_id   2 token   3 ttl_ms   4 fence_ttl_ms   5 kind   6 body   7 refresh_in_ms; "" for no early refresh
-- answers  {"outpaced"} also if the fence has expired, since newer tokens are unknown then   {"written"}
local lock, fence, freed, cached = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = tonumber(ARGV[2])

local holder = redis.call('GET', lock)
local known = redis.call('HMGET', fence, 'token', 'kept')
local newest = tonumber(known[2] or known[1] or '0')
if not (newest and newest >= 0 and newest < 9007199254740992) then
  error({ err = 'UNREADABLE token ' .. fence }) -- it may stand for a higher one
end
redis.call('HLEN', cached) -- fails for another type before the first write
if not known[1] or token < newest then
  return { 'outpaced' }
end

redis.call('DEL', cached)
redis.call('HSET', cached, 'kind', ARGV[5], 'body', ARGV[6])
if ARGV[7] ~= '' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('HSET', cached, 'refresh_at', string.format('%.0f', now + tonumber(ARGV[7])))
end
redis.call('PEXPIRE', cached, ARGV[3])
redis.call('HSET', fence, 'kept', ARGV[2])
redis.call('PEXPIRE', fence, ARGV[4])
if holder ~= ARGV[1] then -- the lease was lost, so that its release will wake nobody
  redis.pcall('PUBLISH', freed, 'cached')
end
return { 'written' }
