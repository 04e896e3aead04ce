#!lua
-- uses shared/clock.lua
-- Begin to lead the schedule, or go on: a leader with a lower fencing token is refused from then on. Safe to run twice.
-- numbers 1:1
-- KEYS     1 leader (hash: token, version)   2 entries (hash: name -> definition)   3 runs (hash: name -> state)
-- ARGV     1 token   2 known: the version that the caller has read; "" if it has read nothing
-- answers  {"superseded", token}
--          {"leading", now_ms, version}   and, unless the caller knows this version, also all entries and all runs as
--          two lists of names and texts
local leader = redis.call('HMGET', KEYS[1], 'token', 'version')
local last, version = tonumber(leader[1] or '0'), leader[2] or '0'
if not (last and last >= 0 and last < 9007199254740992) then
  error({ err = 'UNREADABLE token ' .. KEYS[1] }) -- it may stand for a higher one
end
if tonumber(ARGV[1]) < last then
  return { 'superseded', leader[1] }
end
local answer = { 'leading', digits(now_ms), version }
if version ~= ARGV[2] then
  answer[4] = redis.call('HGETALL', KEYS[2])
  answer[5] = redis.call('HGETALL', KEYS[3])
end
if leader[1] ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'token', ARGV[1])
end
return answer
