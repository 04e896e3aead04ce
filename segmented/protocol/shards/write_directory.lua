#!lua
-- Write a pool's split into shards once, then mark it as open. Nothing else changes it but archiving the pool, after which
-- another can be written in a later epoch.
-- KEYS     1 directory (string: "opening <content>", "open <content>" or "archived <content>")   2 and on, only with the first copy: all keys
--          of the pool of that sku in one hash slot, which must not exist, not even in part
-- ARGV     1 content   2 state ("opening" or "open")
-- answers  {"one_slot"}   that pool, or a part of it, exists
--          {"kept", state, content}   the directory's content now
local found = redis.call('GET', KEYS[1])
if KEYS[2] and redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
  return { 'one_slot' }
end
local function epoch_of(content)
  return tonumber(string.match(content, ' (%d+) %d+ [^ ]+$') or '0')
end
local archived = found and string.match(found, '^archived (.*)$')
if archived and epoch_of(ARGV[1]) > epoch_of(archived) then
  found = nil
end
if not found or ARGV[2] == 'open' and found == 'opening ' .. ARGV[1] then
  found = ARGV[2] .. ' ' .. ARGV[1]
  redis.call('SET', KEYS[1], found)
end
local state, content = string.match(found, '^(%l+) (.*)$')
return { 'kept', state or '', content or '' }
