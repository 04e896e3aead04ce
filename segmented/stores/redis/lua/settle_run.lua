#!lua flags=allow-oom
-- uses shared/once.lua
-- Say what became of a run in the unknown state. Safe to run twice: there is nothing to settle then.
-- ARGV     1 key   2 kind, or "" when it was never done   3 body   4 keep_ms   5 remember_ms
-- answers  {"known"}   no run is in that state   {"finished"}   {"freed", message}
local run = read_run(RECORD)
if not run.is_unknown then
  return { 'known' }
end
drop(RECORD, RUN_FIELDS)
if ARGV[2] ~= '' then
  redis.call('HSET', RECORD, 'done', run.run, 'done_fence', run.fence, 'done_print', run.print, 'done_at', digits(now),
    'kind', ARGV[2], 'body', ARGV[3], 'keep_until', digits(now + tonumber(ARGV[4])))
end
keep(RECORD, ARGV[1], ARGV[5])
redis.call('PUBLISH', FREED, 'settled')
return ARGV[2] ~= '' and { 'finished' } or { 'freed', run.run }
