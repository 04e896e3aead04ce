#!lua flags=allow-oom
-- uses shared/pool.lua
-- Stop archiving a pool: it is closed and whole again. Not once its removal has begun.
-- ARGV     none
-- answers  {"removing"}   {"abandoned"}
local pool = known_numbers()
if string.find(pool.archive or '', '^removing ') then
  return { 'removing' }
end
redis.call('HDEL', META, 'archive')
return { 'abandoned' }
