#!lua
-- Write a value, unless it was written under a higher token before. An equal token is the same holder, writing again.
-- KEYS     1 value (string)   2 fence (string without expiry: the highest token that has written)
-- ARGV     1 value   2 token
-- answers  {"written"}   {"stale", the highest token}
local value, fence, token = KEYS[1], KEYS[2], ARGV[2]
local found = redis.call('GET', fence)
if found and not string.match(found, '^[1-9]%d*$') then
  error({ err = 'UNREADABLE token ' .. fence }) -- it may stand for a higher one
end
local newest = found or '0'
if #newest > #token or #newest == #token and newest > token then -- compared as text: a number is exact only up to 2^53
  return { 'stale', newest }
end
redis.call('SET', fence, token)
redis.call('SET', value, ARGV[1])
return { 'written' }
