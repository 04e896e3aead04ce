#!lua flags=allow-oom
-- uses shared/clock.lua
-- Move a pool on in the index, after a look at it; unless it was moved meanwhile, since then there is something new.
--
-- A process enters its pool before it changes it, and once a second at most. So a pool with nothing due is looked at once
-- more before it counts as quiet (a score with .5); then it is looked at now and then, quiet pools one by one. The end of a
-- hold is entered once for all holds that the process takes until then: so long no look is put off by more than the
-- shortest of them.
-- KEYS     1 the duty (zset: pool -> server ms)   2 holds (hash: pool -> shortest_ms until_ms)
-- ARGV     1 name   2 seen (its score)   3 after_ms ("": nothing is due; "gone": it is no pool)
--          4 again_ms (once more)   5 quiet_ms (at least, of a quiet pool)   6 each_ms (between two quiet pools)
--          7 ends_holds ("1": the duty ends holds)
-- answers  1 if moved, else 0
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not at or tonumber(at) ~= tonumber(ARGV[2]) then
  return 0
end
-- A change that nobody noted, such as a shorter hold, is found by the look at quiet pools: no look is later than that.
local quiet_ms = math.max(tonumber(ARGV[5]), redis.call('ZCARD', KEYS[1]) * tonumber(ARGV[6]))
local noted = ARGV[7] == '1' and redis.call('HGET', KEYS[2], ARGV[1])
local shortest, until_ms = string.match(noted or '', '^(%d+) (%d+)$')
local is_covered = shortest and tonumber(until_ms) > now_ms
if noted and (ARGV[3] == 'gone' or not is_covered) then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
if ARGV[3] == 'gone' then
  redis.call('ZREM', KEYS[1], ARGV[1])
elseif is_covered then
  local after_ms = math.min(tonumber(ARGV[3]) or tonumber(shortest), tonumber(shortest), quiet_ms)
  redis.call('ZADD', KEYS[1], digits(now_ms + after_ms), ARGV[1])
elseif ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], digits(now_ms + math.min(tonumber(ARGV[3]), quiet_ms)), ARGV[1])
elseif tonumber(at) % 1 == 0 then
  redis.call('ZADD', KEYS[1], string.format('%.1f', now_ms + tonumber(ARGV[4]) + 0.5), ARGV[1])
else
  local spread = 0.5 + tonumber(time[2]) / 1000000 -- so that pools of one day do not come together
  redis.call('ZADD', KEYS[1], string.format('%.1f', math.floor(now_ms + quiet_ms * spread) + 0.5), ARGV[1])
end
return 1
