#!lua
-- Keep the definition of an entry, remove it together with its state, or forget its state alone, so that it counts as
-- new. Safe to run twice.
-- numbers 4
-- KEYS     1 leader (hash: version)   2 entries (hash: name -> definition)   3 runs (hash: name -> state)
-- ARGV     1 name   2 deed: "keep", "remove" or "reset"   3 definition   4 most: how many entries there may be
-- answers  {"full"}   {"changed", "1" if there was a definition, or of a reset a state, else "0"}
local name, deed = ARGV[1], ARGV[2]
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if not (version and version >= 0 and version < 9007199254740991) then
  error({ err = 'UNREADABLE version ' .. KEYS[1] })
end
local was_there = redis.call('HEXISTS', KEYS[2], name)
local had_state = redis.call('HEXISTS', KEYS[3], name) -- a key of another type fails here, before the first write
if deed == 'keep' and was_there == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[4]) then
  return { 'full' }
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + 1))
if deed == 'keep' then
  redis.call('HSET', KEYS[2], name, ARGV[3])
else
  redis.call('HDEL', KEYS[3], name)
  if deed == 'remove' then
    redis.call('HDEL', KEYS[2], name)
  end
end
return { 'changed', tostring(deed == 'reset' and had_state or was_there) }
