-- The caller's process has seen of the name: the highest epoch, sequence number and fencing token, zeros at first.
-- Then the identity of this server, as it told the connection: "?" if it tells none. Then, if it is another one, that of
-- the server on which the sequence number was seen. Then the profile of the pool, but only if the caller waits for it
-- (`check_profile`). The store adds them as one last item to the arguments that a script names, joined by "-".
local seen_epoch, seen_sequence, seen_token, this_server, seen_server, seen_profile =
  string.match(table.remove(ARGV), '^(%d+)%-(%d+)%-(%d+)%-([^-]+)%-?([^-]*)%-?(.*)$')

-- The last token, as the fence says it. One that cannot be read is refused: a new one might be lower.
local function token_in(text, fence)
  local found = tonumber(text or '0')
  if not (found and found >= 0 and found < 9007199254740992) then
    error({ err = 'UNREADABLE token ' .. fence })
  end
  return found
end

-- The fencing token of a new grant: above the last one, above every one that the caller's process has seen, and not behind
-- the server's clock in microseconds. So tokens grow although the last ones are lost: with an expired fence, or after a
-- failover to a replica that missed some, even if its clock is behind.
local function next_token(last, clock_us)
  return math.max(last + 1, tonumber(seen_token) + 1, clock_us)
end

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
