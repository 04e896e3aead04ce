-- Shared by the scripts that work on the outbox: entries read and written whole, and the dead-letter set.
redis.call('HLEN', DEAD)

local function entry_of(raw)
  local begun, published, quantity, customer, reason, until_ms, worker, by, trace =
    string.match(raw or '0\t0', '^(%d+)\t(%d+)\t?(%d*)\t?([^\t]*)\t?([^\t]*)\t?(%d*)\t?([^\t]*)\t?([^\t]*)\t?(.*)$')
  if not begun or #begun > 15 or #published > 15 or #quantity > 15 or #until_ms > 15 then
    error(DRIFTED)
  end
  return { begun = tonumber(begun), published = tonumber(published), quantity = tonumber(quantity),
    customer = customer, reason = reason, until_ms = tonumber(until_ms) or 0, worker = worker,
    by = by, trace = trace }
end

local function packed_entry(entry)
  return joined({ digits(entry.begun), digits(entry.published),
    entry.quantity and digits(entry.quantity) or '', entry.customer, entry.reason,
    entry.until_ms > 0 and digits(entry.until_ms) or '', entry.worker, entry.by, entry.trace })
end

-- Note that no worker has the order.
local function clear_worker(entry)
  entry.until_ms, entry.worker = 0, ''
end

-- Stop publishing the order until it is replayed; `write_buried` writes it. Its entry stays unchanged: an order submitted
-- again under the same id comes back here. Its units are held until then.
local buried = { ids = {}, holds = {}, entries = {}, notes = {} } -- one table, for Lua allows 200 local variables at once
local function bury(id, entry, hold_until)
  clear_worker(entry)
  local count = #buried.ids
  buried.ids[count + 1] = id
  buried.holds[2 * count + 1], buried.holds[2 * count + 2] = hold_until, id
  buried.entries[2 * count + 1], buried.entries[2 * count + 2] = id, packed_entry(entry)
  buried.notes[2 * count + 1], buried.notes[2 * count + 2] = id, table.concat({ digits(entry.begun), digits(now_ms),
    entry.reason }, '\t')
end

local function write_buried()
  if #buried.ids > 0 then
    redis.call('ZADD', HOLDS, 'XX', unpack(buried.holds))
    redis.call('HSET', DEAD, unpack(buried.notes))
    redis.call('HSET', ENTRIES, unpack(buried.entries))
    redis.call('ZREM', OUTBOX, unpack(buried.ids))
  end
end
