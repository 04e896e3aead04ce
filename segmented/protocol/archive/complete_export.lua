#!lua flags=allow-oom
-- uses shared/pool.lua
-- Note that the archive of a pool is complete, so that its keys may be removed. The first archive counts.
-- ARGV     1 digest (of the archive)   2 target (where it is, percent-encoded)
-- answers  {"not_begun"}   nobody archives it, or not on this server: what was read may be another state
--          {"removing", epoch, digest, target}   of the archive that counts
local pool = read_numbers()
if not pool or not pool.archive then
  pool = read_pool() -- fails for one that was archived
end
check_seen(pool)
local found = pool.archive or ''
local digest, target = string.match(found, '^removing (%x+) (%S*)$')
if digest then
  return { 'removing', pool.epoch, digest, target }
end
if found ~= 'exporting ' .. this_server then
  return { 'not_begun' }
end
redis.call('HSET', META, 'archive', 'removing ' .. ARGV[1] .. ' ' .. ARGV[2])
return { 'removing', pool.epoch, ARGV[1], ARGV[2] }
