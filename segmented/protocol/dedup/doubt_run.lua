#!lua flags=allow-oom
-- uses shared/once.lua
-- End a run in the unknown state: its holder does not know whether the work was done. Safe to run twice.
-- ARGV     1 key   2 message   3 holder   4 run_on (key, message)   5 remember_ms
-- answers  {"released"}   nothing begins until it is settled or freed   {"lost"}   the run is not the holder's
local key, message = ARGV[1], ARGV[2]
local is_on_key = ARGV[4] == 'key'
local where = is_on_key and RECORD or message_key(message)
local run = read_run(where)
if run.run ~= message or run.holder ~= ARGV[3] then
  return { 'lost' }
end
redis.call('HSET', where, 'on_lapse', 'unknown', 'doubt', '1')
keep(where, is_on_key and key or (key .. ' ' .. message), ARGV[5])
redis.pcall('PUBLISH', FREED, 'unknown')
return { 'released' }
