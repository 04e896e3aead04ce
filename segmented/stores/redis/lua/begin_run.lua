#!lua
-- uses shared/once.lua
-- Begin to work on a message. Safe to run twice: the same holder is given the same token.
-- ARGV     1 key   2 message   3 holder   4 print   5 attempt   6 follows: the message that it repeats, or ""
--          7 seat_end (start, end, time, none)   8 run_on (key, message)   9 ttl_ms   10 on_lapse (again, unknown)
--          11 remember_ms   12 task   13 window_ms (with seat_end time)   14 round
-- answers  {"finished", message, kind, body, age_ms}   of this message, of the one it follows, or kept for the key
--          {"cancelled"}   {"outdated", attempt}   {"differs", message}
--          {"held", message, state, free_in_ms or -1, attempt, "1" when this copy is to be sent round}
--          {"begun", token, "1" when a replay}
local key, message, holder, print, attempt, follows = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local seat_end, is_on_key, ttl_ms, on_lapse = ARGV[7], ARGV[8] == 'key', tonumber(ARGV[9]), ARGV[10]
local remember_ms, round = ARGV[11], tonumber(ARGV[14])
local own = message_key(message)

-- A message that has to wait goes round in one copy: the newest, however often the broker has delivered it.
local function goes_round()
  local last = tonumber(redis.call('HGET', own, 'round') or '0')
  if round < last then
    return false
  end
  redis.call('HSET', own, 'round', round + 1)
  redis.call('PEXPIRE', own, digits(tonumber(remember_ms) + ttl_ms))
  return true
end

-- 1. it has ended, or the one that it repeats has
local outcome = fields(RECORD, OUTCOME_FIELDS)
if outcome.done == message then
  return finished(outcome)
end
local known = fields(own, { 'done', 'kind', 'body', 'done_at', 'awaited' })
if known.done then
  return finished(known)
end
if follows ~= '' then
  if outcome.done == follows and outcome.kind ~= 'cancelled' then
    return finished(outcome)
  end
  local first = fields(message_key(follows), { 'done', 'kind', 'body', 'done_at' })
  if first.done and first.kind ~= 'cancelled' then
    return finished(first)
  end
end

-- 2. a later attempt of it was published
local run = read_run(is_on_key and RECORD or own)
local reached = math.max(tonumber(known.awaited or '0'), run.run == message and tonumber(run.attempt) or 0)
if attempt < reached then
  return { 'outdated', digits(reached) }
end

-- 3. somebody works on it, or on another message of the key
if run.run == message and run.holder == holder and run.is_live then
  return { 'begun', run.fence, '1' }
end
local is_next = run.run == message and attempt > tonumber(run.attempt)
if (run.is_live or run.is_unknown) and not is_next then
  if run.run ~= message and differs(run.print, print) then
    return { 'differs', run.run }
  end
  return held_by_run(run, run.is_live and goes_round())
end
if follows ~= '' and not is_on_key then
  local first = read_run(message_key(follows))
  if first.is_live or first.is_unknown then
    return held_by_run(first, first.is_live and goes_round())
  end
end

-- 4. another message has the seat; not in the way of one that had it before, and has been put off since
local seat = read_seat(RECORD)
local has_begun = known.awaited or run.run == message
if seat_end ~= 'none' and seat.is_live and seat.seat ~= message and not has_begun then
  if differs(seat.seat_print, print) then
    return { 'differs', seat.seat }
  end
  return held(seat.seat, 'waiting', seat.seat_until, seat.seat_attempt, goes_round())
end

-- 5. an outcome is kept for repeats, of which this is one that nobody claimed
if outcome.done and tonumber(outcome.keep_until) > now and seat.seat ~= message and not has_begun then
  if differs(outcome.done_print, print) then
    return { 'differs', outcome.done }
  end
  return finished(outcome)
end

-- 6. it is ours. The token is past the last one and not behind the clock, so that it grows also after a loss of memory.
local last = tonumber(redis.call('HGET', RECORD, 'token') or '0')
local token = string.format('%.0f', math.max(last + 1, tonumber(time[1]) * 1000000 + tonumber(time[2])))
local where = is_on_key and RECORD or own
redis.call('HSET', where, 'run', message, 'print', print, 'holder', holder, 'fence', token, 'attempt', digits(attempt),
  'begun_at', digits(now), 'run_until', digits(now + ttl_ms), 'on_lapse', on_lapse, 'task', ARGV[12])
redis.call('HDEL', where, 'doubt', 'round', 'awaited')
redis.call('HSET', RECORD, 'token', token, 'task', ARGV[12])
if seat_end == 'time' and not seat.is_live then
  redis.call('HSET', RECORD, 'seat', message, 'seat_print', print, 'seat_until', digits(now + tonumber(ARGV[13])),
    'seat_since', digits(now), 'seat_attempt', '0', 'sent_at', digits(now))
elseif seat.seat and (seat.seat == message or not seat.is_live) and seat_end ~= 'time' then
  drop(RECORD, SEAT_FIELDS)
  if seat_end == 'start' then
    redis.call('PUBLISH', FREED, 'begun')
  end
end
keep(RECORD, key, remember_ms)
if not is_on_key then
  keep(own, key .. ' ' .. message, remember_ms)
end
return { 'begun', token, '0' }
