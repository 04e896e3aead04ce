#!lua flags=allow-oom
-- uses shared/pool.lua
-- Stop archiving a pool: it is closed and whole again. Not once its removal has begun.
-- ARGV     none
-- answers  {"missing"}   {"removing"}   {"abandoned"}
local pool = read_numbers()
if not pool then
  return { 'missing' }
end
if string.find(pool.archive or '', '^removing ') then
  return { 'removing' }
end
redis.call('HDEL', META, 'archive')
return { 'abandoned' }
