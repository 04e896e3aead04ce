#!lua flags=allow-oom
-- uses shared/once.lua
-- Make sure that a message never begins, and free its claims. Safe to run twice.
-- A run that must not be repeated becomes unknown and stays so until it is settled or freed.
-- ARGV     1 key   2 message   3 remember_ms   4 run_on (key, message)   5 is_dead: "1" if its run is known to be over
-- answers  {"finished", message, kind, body, age_ms}   it had ended   {"running", free_in_ms}   {"cancelled"}
local key, message, remember_ms = ARGV[1], ARGV[2], ARGV[3]
local is_on_key = ARGV[4] == 'key'
local own = message_key(message)
for _, place in ipairs({ RECORD, own }) do
  local outcome = read_outcome(place)
  if outcome.done == message then
    return finished(outcome)
  end
end
local where = is_on_key and RECORD or own
local run, seat = read_run(where), read_seat(RECORD)
if run.run == message then
  if run.is_live and ARGV[5] ~= '1' then
    return { 'running', digits(tonumber(run.run_until) - now) }
  end
  if run.on_lapse == 'unknown' then
    redis.call('HSET', where, 'doubt', '1')
  else
    drop_run(where, remember_ms)
    redis.pcall('ZREM', RUNS, message)
  end
end
local due = now
if seat.seat == message then
  due = tonumber(seat.seat_until)
  drop(RECORD, SEAT_FIELDS)
end
note_message(message, math.max(0, due - now) + tonumber(remember_ms),
  'done', message, 'kind', 'cancelled', 'body', '', 'done_at', digits(now))
redis.pcall('ZREM', LINE, message)
note_claim(own, key .. ' ' .. message)
if redis.call('EXISTS', RECORD) == 1 then
  keep(RECORD, key, remember_ms)
end
redis.pcall('PUBLISH', FREED, 'cancelled')
return { 'cancelled' }
