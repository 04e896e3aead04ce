#!lua flags=allow-oom
-- uses shared/once.lua
-- Settle a run in the unknown state. Safe to run twice: a repeat finds nothing to settle. A holder that returns is
-- overtaken: its token is not that of the outcome.
-- ARGV     1 key   2 message, or "" for the run of the key   3 kind, or "" if it was never done   4 body   5 keep_ms
--          6 remember_ms   7 of_message: only if the run is of this message, or ""
-- answers  {"known"}   no such run is in that state   {"finished"}   {"freed", message}
local key, message, kind, remember_ms, of_message = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]
local is_on_key = message == ''
local where = is_on_key and RECORD or message_key(message)
local run = read_run(where)
if not run.is_unknown or (of_message ~= '' and of_message ~= run.run) then
  return { 'known' }
end
drop_run(where, remember_ms)
if kind == '' then
  note_attempt(run, remember_ms)
elseif is_on_key then
  move_outcome(run.run, remember_ms)
  redis.call('DEL', message_key(run.run)) -- its attempts and rounds
  write_outcome(where, run, '0', kind, ARGV[4], now + tonumber(ARGV[5]))
else
  write_outcome(where, run, '0', kind, ARGV[4], now)
end
keep(where, is_on_key and key or (key .. ' ' .. message), remember_ms)
redis.pcall('PUBLISH', FREED, 'settled')
return kind ~= '' and { 'finished' } or { 'freed', run.run }
