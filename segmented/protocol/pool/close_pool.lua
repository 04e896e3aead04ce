#!lua flags=allow-oom
-- uses shared/pool.lua
-- Stop taking new orders. Reservations can still be confirmed or cancelled, and still expire.
-- ARGV     none
-- answers  {"closed", state, replay}   state as read_pool answers it
local pool = read_pool()
if pool.is_closed then
  return { 'closed', pool_state(), is_further and redis.call('HGET', META, 'closed_by') == this_call and '0' or '1' }
end
append(pool, 'closed', pool_line('', pool.available, '', '')) -- the first write: if it fails, nothing has changed
redis.call('HSET', META, 'closed', '1', 'closed_by', this_call)
write_pool(pool)
return { 'closed', pool_state(), '0' }
