#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 1
-- Remove what is left of a pool after its records. A note of the archive stays for a while, so that a process that knew
-- the pool learns what became of it. The segments' locks are leases, which lapse.
-- KEYS     after those of the pool: 15 carts (hash)   16 unfinished (zset)   17 ledger_copy (stream)
-- ARGV     1 note_ms (how long the note stays)
-- answers  {"not_removing"}   its archive is not complete
--          {"more"}   a key still has records
--          {"removed"}   now or before
local pool = read_numbers()
if not pool and tombstone then
  return { 'removed' }
end
pool = pool or error(MISSING)
local about = string.match(pool.archive or '', '^removing (.*)$')
if not about then
  return { 'not_removing' }
end
if redis.call('EXISTS', STOCK, FREE, ORDERS, HOLDS, CUSTOMERS, CHANGES, TRANSFERS, OUTBOX, ENTRIES, DEAD, KEYS[15],
    KEYS[16]) + redis.call('XLEN', LEDGER) > 0 then
  return { 'more' }
end
local note = 'archived ' .. pool.epoch .. ' ' .. digits(now_ms) .. ' ' .. about
redis.call('PEXPIRE', META, ARGV[1]) -- the first write: if the account may not, nothing has changed
redis.call('DEL', LEDGER, KEYS[17], META)
redis.call('HSET', META, 'archive', note)
redis.call('PEXPIRE', META, ARGV[1])
redis.pcall('PUBLISH', FREED, 'archived')
return { 'removed' }
