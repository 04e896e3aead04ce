-- Shared by the scripts that work on the outbox: entries read and written whole, and the dead-letter set.
redis.call('HLEN', DEAD)

local function entry_of(raw)
  local begun, published, quantity, customer, reason, until_ms, worker, by =
    string.match(raw or '0\t0', '^(%d+)\t(%d+)\t?(%d*)\t?([^\t]*)\t?([^\t]*)\t?(%d*)\t?([^\t]*)\t?(.*)$')
  return { begun = tonumber(begun), published = tonumber(published), quantity = tonumber(quantity),
    customer = customer, reason = reason, until_ms = tonumber(until_ms) or 0, worker = worker,
    by = by }
end

local function packed_entry(entry)
  return joined({ digits(entry.begun), digits(entry.published),
    entry.quantity and digits(entry.quantity) or '', entry.customer, entry.reason,
    entry.until_ms > 0 and digits(entry.until_ms) or '', entry.worker, entry.by })
end

-- Note that no worker has the order.
local function clear_worker(entry)
  entry.until_ms, entry.worker = 0, ''
end

-- Stop publishing the order until it is replayed. Its entry stays unchanged: an order submitted again under the same id
-- comes back here. Its units are held until `hold_until`.
local function bury(id, entry, hold_until)
  clear_worker(entry)
  redis.call('ZADD', HOLDS, 'XX', hold_until, id)
  redis.call('HSET', DEAD, id, table.concat({ digits(entry.begun), digits(now_ms), entry.reason,
    entry.quantity and digits(entry.quantity) or '', entry.customer }, '\t'))
  redis.call('HSET', ENTRIES, id, packed_entry(entry))
  redis.call('ZREM', OUTBOX, id)
end
