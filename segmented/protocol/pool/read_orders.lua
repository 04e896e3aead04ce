#!lua flags=no-writes
-- uses shared/pool.lua
-- Records and the ends of their holds, in one step. Only of the first orders, if their records reach 256 KiB.
-- ARGV     order ids, at most 1,000
-- answers  {"orders", {record or nothing, ...}, {ms or nothing, ...}}   of a pool that is not open: nothings
check_archived()
local records, raws, bytes = {}, raws_of(ARGV), 0
for index = 1, #ARGV do
  if bytes >= PAGE_BYTES then
    break
  end
  records[index] = raws(index)
  bytes = bytes + (records[index] and #records[index] or 0)
end
return { 'orders', records, redis.call('ZMSCORE', HOLDS, unpack(ARGV, 1, #records)) }
