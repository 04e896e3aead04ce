#!lua flags=allow-oom
-- uses shared/pool.lua
-- Remove records of one key of a pool whose archive is complete; of the ledger, its oldest entries.
-- KEYS     after those of the pool: 15 carts (hash)   16 unfinished (zset): the carts that the pool keeps
-- ARGV     1 key (its name)   2 ledger_entries (how many)   3 and on: fields or members, at most 1,000
-- answers  {"not_removing"}   its archive is not complete
--          {"left", records left in the key}
local HASHES = { stock = STOCK, orders = ORDERS, customers = CUSTOMERS, changes = CHANGES, transfers = TRANSFERS,
  entries = ENTRIES, dead = DEAD, carts = KEYS[15] }
local SETS = { free = FREE, holds = HOLDS, outbox = OUTBOX, unfinished = KEYS[16] }
local name = ARGV[1]
local pool = read_numbers()
if not pool and tombstone then
  return { 'left', '0' }
end
pool = pool or error(MISSING)
if not string.find(pool.archive or '', '^removing ') then
  return { 'not_removing' }
end
local hash, set = HASHES[name], SETS[name]
if name == 'ledger' then
  redis.call('XTRIM', LEDGER, 'MAXLEN', '=', digits(math.max(0, redis.call('XLEN', LEDGER) - tonumber(ARGV[2]))))
  return { 'left', digits(redis.call('XLEN', LEDGER)) }
end
if ARGV[3] then
  redis.call(hash and 'HDEL' or 'ZREM', hash or set, unpack(ARGV, 3))
end
return { 'left', digits(hash and redis.call('HLEN', hash) or redis.call('ZCARD', set)) }
