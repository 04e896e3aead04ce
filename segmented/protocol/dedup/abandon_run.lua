#!lua flags=allow-oom
-- uses shared/once.lua
-- End a run without an outcome; with a next attempt the message keeps its claims until that arrives. Safe to run twice.
-- ARGV     1 key   2 message   3 holder   4 seat_end (start, end, none)   5 run_on (key, message)   6 remember_ms
--          7 next attempt or ""   8 wait_ms   9 delay_ms   10 expires_ms of that attempt (0: never)   11 text: what is
--          published if it is lost, or ""
-- answers  {"released"}   {"lost"}   the run is not the holder's
local key, message, remember_ms, following = ARGV[1], ARGV[2], ARGV[6], ARGV[7]
local is_on_key = ARGV[5] == 'key'
local own = message_key(message)
local where = is_on_key and RECORD or own
local run = read_run(where)
if run.run ~= message or run.holder ~= ARGV[3] then
  local awaited = redis.call('HGET', own, 'awaited')
  return { following ~= '' and awaited and tonumber(awaited) >= tonumber(following) and 'released' or 'lost' }
end

local seat = (following ~= '' or not is_on_key) and read_seat(RECORD)
local task = following ~= '' and redis.call('HGET', RECORD, 'task') or ''
drop_run(where, remember_ms)
if following ~= '' then
  local due = now + tonumber(ARGV[9])
  local last = due + tonumber(ARGV[8])
  note_message(message, last - now + tonumber(remember_ms),
    'awaited', following, 'awaited_until', digits(last), 'task', task)
  if ARGV[4] ~= 'none' and seat.is_live and seat.call then
    note_message(message, last - now + tonumber(remember_ms), 'follows', seat.seat) -- a later call is to run instead
  elseif ARGV[4] ~= 'none' and not seat.is_live then
    drop(RECORD, SEAT_FIELDS)
    redis.call('HSET', RECORD, 'seat', message, 'seat_print', run.print, 'seat_until', digits(last),
      'seat_since', digits(now), 'seat_attempt', following, 'sent_at', digits(due))
    if tonumber(ARGV[10]) > 0 then
      redis.call('HSET', RECORD, 'expires_at', digits(now + tonumber(ARGV[10])))
    end
    if ARGV[11] ~= '' then
      redis.call('HSET', RECORD, 'seat_text', ARGV[11])
    end
    if run.call then
      redis.call('HSET', RECORD, 'seat_call', run.call, 'due_at', digits(due))
    end
  end
else
  note_attempt(run, remember_ms)
end
if not is_on_key then
  redis.pcall('ZREM', RUNS, message)
  note_claim(own, key .. ' ' .. message)
end
keep(RECORD, key, remember_ms)
redis.pcall('PUBLISH', FREED, 'abandoned')
return { 'released' }
