#!lua flags=allow-oom
-- uses shared/pool.lua
-- Take a customer's id out of records of decided orders, and of finished carts, whose records go as a whole. A record goes
-- without the customer only if the ledger has no entry of it any more, so that an audit is clean at every step;
-- the units that the customer has bought are lowered with it. Safe to run twice.
-- KEYS     after those of the pool: 15 carts (hash)   16 unfinished (zset)
-- ARGV     1 customer_id   2 kind ("orders", "carts", or "count": of forgotten orders; no ids)   3 and on: ids, at most 1,000
-- answers  {"erased", erased, undecided, recent}   counts; recent ones are in the ledger still
local customer, kind, ids = ARGV[1], ARGV[2], { unpack(ARGV, 3) }
check_one_of({ orders = true, carts = true, count = true }, kind)
check_texts({ customer })
check_count(#ids)
local pool = read_pool()
redis.call('HLEN', KEYS[15])
redis.call('ZCARD', KEYS[16])
redis.call('HLEN', CUSTOMERS)
local start = whole(redis.call('HGET', META, 'ledger_start') or '1') or error(DRIFTED)
local raws, undecided, recent, gone, units = raws_of(ids), 0, 0, {}, 0
local changed = {}
for index, id in ipairs(kind == 'orders' and ids or {}) do
  local raw = raws(index)
  local record = raw and readable(raw)
  local queued = read_queued(id)
  if queued and queued.customer == customer or record and record.customer == customer and record.state == 'r' then
    undecided = undecided + 1
  elseif record and record.customer == customer and record.sequence >= start then
    recent = recent + 1
  else
    if record and record.customer == customer then
      record.customer = ''
      changed[#changed + 1], changed[#changed + 2] = id, packed(record)
      units = units + (record.state == 'c' and record.quantity or 0)
    end
  end
end
for _, id in ipairs(kind == 'carts' and ids or {}) do
  if redis.call('ZSCORE', KEYS[16], id) then
    undecided = undecided + 1
  else
    gone[#gone + 1] = id
  end
end
local bought = pool.customer_limit > 0 and whole(redis.call('HGET', CUSTOMERS, customer) or '0') or 0
local left = kind == 'count' and 0 or bought - units

if #changed > 0 then
  redis.call('HSET', ORDERS, unpack(changed))
end
if #gone > 0 then
  redis.call('HDEL', KEYS[15], unpack(gone))
end
if left < bought and left > 0 then
  redis.call('HSET', CUSTOMERS, customer, digits(left))
elseif left < bought then
  redis.call('HDEL', CUSTOMERS, customer)
end
local count = #changed / 2 + #gone + (kind == 'count' and bought > 0 and 1 or 0)
return { 'erased', digits(count), digits(undecided), digits(recent) }
