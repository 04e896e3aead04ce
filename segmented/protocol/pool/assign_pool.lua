#!lua flags=allow-oom
-- uses shared/pool.lua
-- Name the queue and the step of the workers that take the pool's submitted orders (shared/assignment.lua).
-- ARGV     1 queue   2 step ("": any)
-- answers  {"assigned", state, replay}   state as read_pool answers it
read_pool()
local found = redis.call('HMGET', META, 'queue', 'step', 'assigned_by')
if (found[1] or '') == ARGV[1] and (found[2] or '') == ARGV[2] then
  return { 'assigned', pool_state(), is_further and found[3] == this_call and '0' or '1' }
end
redis.call('HSET', META, 'queue', ARGV[1], 'step', ARGV[2], 'assigned_by', this_call)
return { 'assigned', pool_state(), '0' }
