#!lua flags=allow-oom
-- uses shared/clock.lua
-- Keep what a process reports of itself, for those who watch. Reports of processes that are silent go when there are
-- too many, and all of them when every process is silent.
-- KEYS     1 reports (hash with PX: process -> server ms, a tab, its report)
-- ARGV     1 process   2 report   3 life_ms   4 processes_max
-- answers  1 kept   0 too many processes report

local count, silent = redis.call('HLEN', KEYS[1]), {}
if count >= tonumber(ARGV[4]) and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  local found = redis.call('HGETALL', KEYS[1])
  for index = 1, #found, 2 do
    if now_ms - (tonumber(string.match(found[index + 1], '^%d+')) or 0) > tonumber(ARGV[3]) then
      silent[#silent + 1] = found[index]
    end
  end
  if #silent == 0 then
    return 0
  end
end
if #silent > 0 then
  redis.call('HDEL', KEYS[1], unpack(silent))
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d\t%s', now_ms, ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
