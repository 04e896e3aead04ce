#!lua
-- uses shared/once.lua
-- Take the seat of a key for a message that is about to be published. Safe to run twice: the same message gets a replay.
-- ARGV     1 key   2 message   3 print   4 task   5 wait_ms   6 remember_ms   7 delay_ms   8 delay_max_ms (0: no limit)
--          9 resend_ms (0: never)   10 is_blocked_by_run ("1")   11 replaces ("1")
-- answers  {"claimed", "1", delay_ms, ""}   a replay: the seat is the message's
--          {"finished", message, kind, body, age_ms}   an outcome is kept for publishers
--          {"differs", message}   the key is held, or its outcome kept, for another payload
--          {"held", message, state, free_in_ms or -1, attempt, "1" if it is to be sent again, "0"}
--          {"claimed", "0", delay_ms, the message whose seat it was or ""}   that one is a repeat now, unless it runs
local key, message, print, remember_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local wait_ms, delay_ms, delay_max_ms, resend_ms = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local is_blocked_by_run, replaces = ARGV[10] == '1', ARGV[11] == '1'

local seat = read_seat(RECORD)
if seat.is_live and seat.seat == message then
  return { 'claimed', '1', digits(math.max(0, tonumber(seat.sent_at) - now)), '' }
end

local outcome = read_outcome(RECORD)
if outcome.done and tonumber(outcome.keep_until) > now then
  if differs(outcome.done_print, print) then
    return { 'differs', outcome.done }
  end
  return kept(outcome)
end

local run = read_run(RECORD)
if is_blocked_by_run and (run.is_live or run.is_unknown) then
  if differs(run.print, print) then
    return { 'differs', run.run }
  end
  return held_by_run(run)
end

-- A message that was replaced and repeats its claim must not end its successor.
local was_replaced = redis.call('HEXISTS', message_key(message), 'replaced_by') == 1
if seat.is_live and (was_replaced or not replaces) then
  if differs(seat.seat_print, print) then
    return { 'differs', seat.seat }
  end
  local is_late = resend_ms > 0 and now - tonumber(seat.sent_at) >= resend_ms
  if is_late then
    redis.call('HSET', RECORD, 'sent_at', digits(now))
  end
  return held(seat.seat, 'waiting', seat.seat_until, seat.seat_attempt, is_late)
end

local since = seat.is_live and tonumber(seat.seat_since) or now
if delay_max_ms > 0 then
  delay_ms = math.max(0, math.min(delay_ms, since + delay_max_ms - now))
end
if seat.is_live then
  local its = read_run(message_key(seat.seat))
  local is_at_work = (run.run == seat.seat and (run.is_live or run.is_unknown)) or its.is_live or its.is_unknown
  if not is_at_work then
    note_message(seat.seat, math.max(0, tonumber(seat.seat_until) - now) + tonumber(remember_ms), 'replaced_by', message)
  end
end
if is_blocked_by_run then
  take_place(run, print, message, remember_ms)
end
if was_replaced then
  redis.call('HDEL', message_key(message), 'replaced_by', 'is_orphan')
end
redis.call('HSET', RECORD, 'seat', message, 'seat_print', print, 'seat_until', digits(now + delay_ms + wait_ms),
  'seat_since', digits(since), 'seat_attempt', '0', 'sent_at', digits(now + delay_ms), 'task', ARGV[4])
keep(RECORD, key, remember_ms)
return { 'claimed', '0', digits(delay_ms), seat.is_live and seat.seat or '' }
