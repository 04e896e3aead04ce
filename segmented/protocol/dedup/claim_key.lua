#!lua
-- uses shared/once.lua
-- Take the seat of a key for a message that is about to be published. Safe to run twice: the same message gets a replay.
-- ARGV     1 key   2 message   3 print   4 task   5 wait_ms   6 remember_ms   7 delay_ms   8 delay_max_ms (0: no limit)
--          9 resend_ms (0: never)   10 is_blocked_by_run ("1")   11 call: the arguments, of a rule whose waiting message
--          runs with those of the latest call, or ""   12 expires_ms: when the call expires (0: never)   13 text: what is
--          published if the message is lost, or ""
-- answers  {"claimed", "1", delay_ms}   a replay: the seat is the message's
--          {"finished", message, kind, body, age_ms}   an outcome is kept for publishers
--          {"differs", message, task, "1" if its outcome is kept, "0" if it is held}   for another payload
--          {"held", message, state, free_in_ms or -1, attempt, "0", "0", "0", text to publish or "", "1" to publish it}
--          {"claimed", "0", delay_ms}
local key, message, print, remember_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local wait_ms, delay_ms, delay_max_ms, resend_ms = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local is_blocked_by_run, call, expires_ms = ARGV[10] == '1', ARGV[11], tonumber(ARGV[12])

local seat = read_seat(RECORD)
if seat.is_live and seat.seat == message then
  return { 'claimed', '1', digits(math.max(0, tonumber(seat.sent_at) - now)) }
end

local outcome = read_outcome(RECORD)
if outcome.done and tonumber(outcome.keep_until) > now then
  if differs(outcome.done_print, print) then
    return different(outcome.done, true)
  end
  return kept(outcome)
end

local run = read_run(RECORD)
if is_blocked_by_run and (run.is_live or run.is_unknown) then
  if differs(run.print, print) then
    return different(run.run)
  end
  return held_by_run(run)
end

if seat.is_live then
  if differs(seat.seat_print, print) then
    return different(seat.seat)
  end
  local ends = digits(math.max(tonumber(seat.seat_until), now + delay_ms + wait_ms))
  if seat.expires_at and seat.expires_at > 0 and (expires_ms == 0 or now + expires_ms > seat.expires_at) then
    redis.call('HSET', RECORD, 'expires_at', expires_ms == 0 and '0' or digits(now + expires_ms), 'seat_until', ends)
    keep(RECORD, key, remember_ms)
  end
  if call ~= '' then
    local due = now + delay_ms
    if delay_max_ms > 0 then
      due = math.min(due, tonumber(seat.seat_since) + delay_max_ms)
    end
    redis.call('HSET', RECORD, 'seat_call', call, 'due_at', digits(due), 'seat_until', digits(due + wait_ms))
    keep(RECORD, key, remember_ms)
  end
  return held_by_seat(seat, resend_ms)
end

if is_blocked_by_run then
  take_place(run, print, message, remember_ms)
end
drop(RECORD, SEAT_FIELDS)
redis.call('HSET', RECORD, 'seat', message, 'seat_print', print, 'seat_until', digits(now + delay_ms + wait_ms),
  'seat_since', digits(now), 'seat_attempt', '0', 'sent_at', digits(now + delay_ms), 'task', ARGV[4])
if call ~= '' then
  redis.call('HSET', RECORD, 'seat_call', call, 'due_at', digits(now + delay_ms))
end
if expires_ms > 0 then
  redis.call('HSET', RECORD, 'expires_at', digits(now + expires_ms))
end
if ARGV[13] ~= '' then
  redis.call('HSET', RECORD, 'seat_text', ARGV[13])
end
keep(RECORD, key, remember_ms)
return { 'claimed', '0', digits(delay_ms) }
