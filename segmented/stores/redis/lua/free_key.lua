#!lua flags=allow-oom
-- uses shared/once.lua
-- End whatever holds a key, and forget its outcome. Safe to run twice: there is nothing left to end then. The highest token
-- stays, and a holder at work is fenced.
-- ARGV     1 key
-- answers  {"running" or "unknown" or "waiting" or "done" or "none", message or ""}
local run, seat = read_run(RECORD), read_seat(RECORD)
local done = redis.call('HGET', RECORD, 'done')
local state, message = 'none', ''
if run.run then
  state, message = run.is_unknown and 'unknown' or 'running', run.run
elseif seat.is_live then
  state, message = 'waiting', seat.seat
elseif done then
  state, message = 'done', done
end
drop(RECORD, RUN_FIELDS)
drop(RECORD, SEAT_FIELDS)
drop(RECORD, OUTCOME_FIELDS)
redis.call('ZREM', CLAIMS, ARGV[1])
redis.call('PUBLISH', FREED, 'freed')
return { state, message }
