-- When a pool's changes are acknowledged, which `profile` of meta says: "memory" and "database" need no more than this
-- script; with another profile, the caller lets WAIT or WAITAOF follow it on the same connection.
-- A caller that does not know the profile has not done so: fail with PROFILE, which names it and says whether the pool is
-- gated ("1"), and nothing is changed.
-- WAIT counts at once if its connection has written nothing, so a script that may only repeat an answer writes too.
local function check_profile(meta, profile, is_gated)
  if not profile or not string.match(profile, '^[%w:/]+$') then
    error({ err = 'DRIFTED the profile of the pool is missing or cannot be read: it was written to from outside' })
  end
  local waits = profile ~= 'memory' and profile ~= 'database' and profile or ''
  if waits ~= seen_profile then
    error({ err = 'PROFILE ' .. profile .. ' ' .. (is_gated and '1' or '0') })
  end
  if waits ~= '' then
    redis.pcall('HSET', meta, 'profile', profile) -- a script that may not write is not waited for
  end
end
