#!lua flags=allow-oom
-- Note in one copy of a pool's directory that all its shards are archived. The note stays for a while.
-- KEYS     1 directory (string: "open <content>" or "archived <content>")
-- ARGV     1 content   2 note_ms (how long the note stays)
-- answers  {"differs"}   it is the directory of another pool
--          {"archived"}
local found = redis.call('GET', KEYS[1])
if found and found ~= 'open ' .. ARGV[1] and found ~= 'archived ' .. ARGV[1] then
  return { 'differs' }
end
if found == 'open ' .. ARGV[1] then
  redis.call('SET', KEYS[1], 'archived ' .. ARGV[1], 'PX', ARGV[2])
end
return { 'archived' }
