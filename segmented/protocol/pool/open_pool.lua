#!lua
-- uses shared/pool.lua
-- numbers 1:0:1000000000000 2:1:4096 3:0:1 4:0:999999999999999 5:0:1000000000000
-- Open a pool once. A pool that has lost some of its keys is not reopened, because its units could be sold again. One
-- that was archived can be opened again in a later epoch.
-- KEYS     after those of the pool: 15 carts (hash)   16 unfinished (zset): the carts that the pool keeps
--          17 directory (string): of a pool of that sku in shards
-- ARGV     1 stock   2 segment_count   3 gated ("1" or "0")   4 epoch   5 customer_limit (0: none)
--          6 profile   7 sale_id (of the order database; empty: none)
--          8 queue and 9 step of the workers that take its submitted orders (empty: any)
-- answers  {"already_open", state}   {"opened", state}   state as read_pool answers it
--          {"remains"}   some keys exist but not meta
--          {"vanished", epoch}   the caller's process has seen it open in this epoch or a later one, and it is gone
--          {"in_shards"}   the sku is sold in shards
local stock, segment_count = tonumber(ARGV[1]), tonumber(ARGV[2])

local found = read_numbers()
if found then
  check_seen(found)
  if found.archive then
    error({ err = 'ARCHIVED ' .. found.archive })
  end
  local is_own = own_change(found, 1) -- an earlier attempt of this call opened it
  return { is_own and 'opened' or 'already_open', pool_state() }
end
if tombstone and (tonumber(string.match(tombstone, '^archived (%d+) ')) or 0) >= tonumber(ARGV[4]) then
  error({ err = 'ARCHIVED ' .. tombstone })
end
if tonumber(seen_epoch) >= tonumber(ARGV[4]) then
  return { 'vanished', seen_epoch }
end
if redis.call('EXISTS', KEYS[17]) == 1 then
  return { 'in_shards' }
end
if redis.call('EXISTS', META, STOCK, FREE, ORDERS, HOLDS, LEDGER, CUSTOMERS, CHANGES, TRANSFERS, OUTBOX,
    ENTRIES, DEAD, KEYS[15], KEYS[16]) > (tombstone and 1 or 0) then
  return { 'remains' }
end

if tombstone then
  redis.call('DEL', META)
end
redis.call('HSET', META, 'layout', LAYOUT, 'epoch', ARGV[4], 'segment_count', ARGV[2], 'gated', ARGV[3],
  'sequence', '0', 'fence', '0', 'opened', ARGV[1], 'available', ARGV[1], 'reserved', '0', 'confirmed', '0', 'restocked', '0', 'withdrawn', '0',
  'sent', '0', 'received', '0', 'cursor', '0', 'chain', NO_DIGEST, 'customer_limit', ARGV[5], 'closed', '0',
  'profile', ARGV[6], 'servers', this_server ~= '?' and this_server .. ':0' or '')
if ARGV[3] == '1' then
  redis.call('HSET', META, 'server', this_server, 'sale_id', ARGV[7])
end
if ARGV[8] ~= '' or ARGV[9] ~= '' then
  redis.call('HSET', META, 'queue', ARGV[8], 'step', ARGV[9])
end
write_stock(stock, segment_count)
each_chunk(segment_count, MANY, function(first, last)
  local free = {}
  for segment = first, last do
    free[#free + 1], free[#free + 2] = '0', segment
  end
  redis.call('ZADD', FREE, unpack(free))
end)
local pool = read_numbers()
append(pool, 'opened', pool_line('', stock, even_parts(stock, segment_count), ARGV[2]))
write_pool(pool)
return { 'opened', pool_state() }
