#!lua flags=no-writes
-- uses shared/pool.lua
-- Read when a pool has something to do: the earliest publication of its outbox, the earliest end of a hold, and of a cart.
-- KEYS     after those of the pool: 15 unfinished (zset)
-- ARGV     none
-- answers  {"next", publish_in_ms, hold_in_ms, cart_in_ms}   "" for never; below 0: since then
read_pool()

local function next_of(key)
  local at = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or SUBMITTED_UNTIL)
  return at < tonumber(SUBMITTED_UNTIL) and string.format('%.0f', at - now_ms) or ''
end

return { 'next', next_of(OUTBOX), next_of(HOLDS), next_of(KEYS[15]) }
