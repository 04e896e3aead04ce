#!lua flags=allow-oom
-- Change the state of an entry: only for the newest leader, only from the state that it has read, and not before its slot
-- is due by the server's clock. Safe to run twice, as each state names its leader.
-- numbers 1:1 5
-- KEYS     1 leader (hash: token)   2 entries (unused)   3 runs (hash: name -> state)
-- ARGV     1 token   2 name   3 before: the state as read; "" for none   4 after; "" to forget it
--          5 due_ms: when the slot begins
-- answers  {"superseded", token; "" for none}   {"other", state; "" for none}   {"early", left_ms}   {"moved"}
local token = redis.call('HGET', KEYS[1], 'token')
if token ~= ARGV[1] then
  return { 'superseded', token or '' }
end
local found = redis.call('HGET', KEYS[3], ARGV[2]) or ''
if found == ARGV[4] then
  return { 'moved' }
end
if found ~= ARGV[3] then
  return { 'other', found }
end
local time = redis.call('TIME')
local left_ms = tonumber(ARGV[5]) - tonumber(time[1]) * 1000 - math.floor(tonumber(time[2]) / 1000)
if left_ms > 0 then
  return { 'early', string.format('%.0f', left_ms) }
end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[3], ARGV[2])
else
  redis.call('HSET', KEYS[3], ARGV[2], ARGV[4])
end
return { 'moved' }
