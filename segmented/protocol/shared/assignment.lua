-- Which workers take the submitted orders of a pool: `queue` and `step` of meta, each absent or empty if any worker may.
-- Return the answer for a worker of another queue, or without the step, and nil for one that may take them. It comes
-- before the pool is read: such a worker neither verifies nor freezes it.
local function assigned_elsewhere(queue, step)
  local named = redis.call('HMGET', META, 'queue', 'step')
  local its_queue, its_step = named[1] or '', named[2] or ''
  if its_queue ~= '' and its_queue ~= queue or its_step ~= '' and its_step ~= step then
    return { 'elsewhere', its_queue, its_step }
  end
end
