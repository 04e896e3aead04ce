#!lua flags=allow-oom
-- uses shared/once.lua
-- Extend a run's lease. Safe to run twice.
-- ARGV     1 key   2 message   3 holder   4 run_on (key, message)   5 ttl_ms   6 remember_ms
-- answers  {"renewed"}   {"lost"}   it expired, passed to another holder, or was freed
local message = ARGV[2]
local is_on_key = ARGV[4] == 'key'
local where = is_on_key and RECORD or message_key(message)
local run = read_run(where)
if run.run ~= message or run.holder ~= ARGV[3] or not run.is_live then
  return { 'lost' }
end
redis.call('HSET', where, 'run_until', digits(now + tonumber(ARGV[5])))
if not is_on_key then
  redis.pcall('ZADD', RUNS, 'XX', digits(now + tonumber(ARGV[5])), message)
  redis.pcall('PEXPIRE', RUNS, ARGV[6])
end
keep(where, is_on_key and ARGV[1] or (ARGV[1] .. ' ' .. message), ARGV[6])
return { 'renewed' }
