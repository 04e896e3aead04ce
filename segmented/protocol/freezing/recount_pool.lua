#!lua flags=allow-oom
-- uses shared/pool.lua
-- numbers 5:1:4096
-- Replace the numbers of a frozen gated pool by those counted from its records and notes, because another program has
-- written to them: they cannot be read, or do not add up. One that cannot be read is frozen by this. The pool stays
-- frozen, and a thaw gives it the order database's numbers. Safe to run twice.
-- ARGV     1 reserved   2 confirmed   3 restocked   4 withdrawn   5 segment_count   6 sequence (the highest of a record)
--          7 reserved before the count (0: cannot be read)   8 confirmed before the count (the same)
-- answers  {"sells"}       it is not frozen, and all of its numbers can be read
--          {"not_gated"}   it has no order database
--          {"outrun"}      the numbers have changed since the count: count again
--          {"recounted", frozen}
check_layout(redis.call('HGET', META, 'layout'))
local found = redis.call('HMGET', META, 'layout', 'gated', 'customer_limit', 'closed', 'frozen', 'epoch', 'sequence',
  'chain', 'segment_count')
if redis.call('EXISTS', META) == 0 then
  error(MISSING)
end
if found[2] == '0' then
  return { 'not_gated' }
end
if found[2] ~= '1' or not (found[3] and whole(found[3])) or not (found[4] and whole(found[4])) then
  error(DRIFTED) -- its settings cannot be read, and nobody else knows them
end

-- A number that a thaw can work with: of at most 15 digits, or a token, which is longer.
local function readable(text, is_token)
  local number = text and whole(text)
  return number and math.abs(number) < (is_token and EXACT_MAX or 1e15) and number or nil
end

local NUMBERS = { 'opened', 'available', 'reserved', 'confirmed', 'restocked', 'withdrawn', 'fence', 'cursor' }
local texts_now, numbers_now, has_all = redis.call('HMGET', META, unpack(NUMBERS)), {}, true
for index, name in ipairs(NUMBERS) do
  numbers_now[name] = readable(texts_now[index], name == 'fence')
  has_all = has_all and numbers_now[name] ~= nil
end
local epoch, sequence = readable(found[6]), readable(found[7])
has_all = has_all and epoch and sequence and found[8] and readable(found[9])
if not found[5] and has_all then
  return { 'sells' }
end
if (numbers_now.reserved or 0) ~= tonumber(ARGV[7]) or (numbers_now.confirmed or 0) ~= tonumber(ARGV[8]) then
  return { 'outrun' }
end

-- The ledger takes no entry below its last one, so its epoch and sequence number are the least that the pool had.
local ledger_epoch, ledger_sequence = last_entry()
epoch = epoch and epoch > 0 and epoch or math.max(1, ledger_epoch or 1)
sequence = math.max(sequence or ledger_sequence or 0, tonumber(ARGV[6]))
local frozen = found[5] or digits(epoch) .. '-' .. digits(sequence)

redis.call('HSET', META, 'epoch', digits(epoch), 'sequence', digits(sequence), 'segment_count', ARGV[5],
  'opened', digits(numbers_now.opened or 0), 'available', digits(numbers_now.available or 0),
  'reserved', ARGV[1], 'confirmed', ARGV[2],
  'restocked', ARGV[3], 'withdrawn', ARGV[4], 'sent', '0', 'received', '0', 'lost', '0',
  'fence', digits(numbers_now.fence or 0), 'cursor', '0', 'chain', found[8] or NO_DIGEST, 'frozen', frozen)
redis.pcall('PUBLISH', FREED, 'frozen')
return { 'recounted', frozen }
