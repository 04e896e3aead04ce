#!lua flags=allow-oom
-- uses shared/once.lua
-- End the claim on a key, and stop giving its outcome to repeats; copies of the outcome's message still find it. Or end
-- the run of one message. Safe to run twice: a repeat finds nothing to end. The highest token stays, and a running
-- holder is fenced.
-- ARGV     1 key   2 message, or "" for the key itself   3 remember_ms
-- answers  {"running" or "unknown" or "waiting" or "done" or "none", message or ""}
local key, message, remember_ms = ARGV[1], ARGV[2], ARGV[3]
local is_on_key = message == ''
local where = is_on_key and RECORD or message_key(message)
local run, seat = read_run(where), read_seat(where)
local done = redis.call('HGET', where, 'done')
local answer = { 'none', '' }
if run.is_live or run.is_unknown then
  answer = { run.is_unknown and 'unknown' or 'running', run.run }
elseif seat.is_live then
  answer = { 'waiting', seat.seat }
elseif done then
  answer = { 'done', done }
end
if run.run then
  drop_run(where, remember_ms)
  note_attempt(run, remember_ms)
end
if is_on_key then
  move_outcome('', remember_ms)
  drop(RECORD, SEAT_FIELDS)
  drop(RECORD, OUTCOME_FIELDS)
  keep(RECORD, key, remember_ms)
else
  redis.pcall('ZREM', RUNS, message)
  note_claim(where, key .. ' ' .. message)
end
redis.pcall('PUBLISH', FREED, 'freed')
return answer
