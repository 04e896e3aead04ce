#!lua
-- uses shared/once.lua
-- Begin to process a message. Safe to run twice: the same holder gets the same token.
-- A copy that has to wait gets the time to come back, so that a herd of copies takes few turns from other tasks: later and
-- later, COPY_MS apart. Where `at_once` run, it stands in a line, and the worker whose run ends publishes the next one.
-- ARGV     1 key   2 message   3 holder   4 print   5 attempt   6 follows: the message that it repeats, or ""; if that
--          died and another took its place, that one
--          7 seat_end (start, end, none)   8 run_on (key, message)   9 ttl_ms   10 on_lapse (again, unknown)
--          11 remember_ms   12 task   13 at_once: maximum number of runs, with run_on message (0: no limit)   14 round
--          15 text: what a worker publishes to call this message when it is its turn, or ""
--          16 resend_ms: a message that has waited for that long may be lost (0: never)
-- answers  {"finished", message, kind, body, age_ms}   of this message, of the one it follows, or kept for the key
--          {"cancelled"}   {"outdated", attempt}   {"differs", message, task, "1" if its outcome is kept, else "0"}
--          {"held", message, state, free_in_ms or -1, attempt, "1" if this copy is to be sent again, its next round,
--          wait_ms, text of the other message or "", "1" to publish that one again}
--          {"early", due_in_ms}   a later call has put it off
--          {"begun", token, "1" for a replay, arguments of the latest call or "", text of the next
--          message to publish or "", message of the run before that has no outcome or ""}
local key, message, holder, print, attempt, follows = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local seat_end, is_on_key, ttl_ms, on_lapse = ARGV[7], ARGV[8] == 'key', tonumber(ARGV[9]), ARGV[10]
local remember_ms, round = ARGV[11], tonumber(ARGV[14])
local own, at_once = message_key(message), tonumber(ARGV[13])
local COPY_MS, WAIT_MIN_MS, WAIT_MAX_MS = 20, 100, 5000
local PASSED_MAX = 10 -- messages in the line that are passed over at once, as they did not come back

-- A waiting message is sent again as one copy, however often the broker has delivered it. A copy is dropped only after a
-- newer one has arrived: before, it is unknown whether that was sent, because its sender may have died. Until then
-- further deliveries of a copy are sent again with their own number, and end when the newer one arrives.
local function held_for_now(answer, ends, wait_ms)
  answer[8] = digits(wait_ms)
  local last = fields(own, { 'round_of', 'round', 'rounder', 'round_at' })
  local last_of, last_round = tonumber(last.round_of or '-1'), tonumber(last.round or '-1')
  if last_of > attempt or (last_of == attempt and last_round > round) then
    return answer
  end
  answer[6] = '1'
  local is_newest = last_of < attempt or last_round < round or last.rounder == holder
  if is_newest or now - tonumber(last.round_at) >= ttl_ms then
    note_message(message, math.max(0, tonumber(ends) - now) + ttl_ms,
      'round_of', digits(attempt), 'round', digits(round), 'rounder', holder, 'round_at', digits(now),
      'back_at', digits(now + wait_ms))
    answer[7] = digits(round + 1)
  else
    answer[7] = digits(round)
  end
  return answer
end

-- How long a copy waits for something that began at `since`: half of that time once more, and COPY_MS after the copy before.
local function wait_for_end(since)
  local wait_ms = math.min(WAIT_MAX_MS, math.max(WAIT_MIN_MS, (now - (tonumber(since) or now)) / 2))
  local at = math.max(now + wait_ms, moment(redis.call('HGET', RECORD, 'next_at') or '0') + COPY_MS)
  if redis.call('EXISTS', RECORD) == 1 then
    redis.call('HSET', RECORD, 'next_at', digits(at))
  end
  return at - now
end

-- Whether no more messages are ahead in the line than may run. Those that did not come back in time are passed over.
local function is_next_in_line(free)
  local ahead = 0
  for _, other in ipairs(redis.call('ZRANGE', LINE, '0', digits(free + PASSED_MAX))) do
    if other == message then
      return true
    end
    if moment(redis.call('HGET', message_key(other), 'back_at') or '0') + ttl_ms < now then
      redis.call('ZREM', LINE, other)
    else
      ahead = ahead + 1
      if ahead >= free then
        return false
      end
    end
  end
  return true
end

-- Put the message into the line; it comes back by itself only if nobody calls it while a lease could end.
local function wait_for_turn()
  redis.call('ZADD', LINE, 'NX', string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2])), message)
  redis.call('PEXPIRE', LINE, remember_ms)
  local wait_ms = ttl_ms + COPY_MS * redis.call('ZRANK', LINE, message)
  note_message(message, wait_ms + tonumber(remember_ms), 'text', ARGV[15])
  redis.call('HDEL', own, 'called_at')
  return ARGV[15] ~= '' and wait_ms or wait_for_end(now - 2000)
end

-- A message that will not run again loses its seat.
local function ended(answer)
  if redis.call('HGET', RECORD, 'seat') == message then
    drop(RECORD, SEAT_FIELDS)
    keep(RECORD, key, remember_ms)
    redis.pcall('PUBLISH', FREED, 'ended')
  end
  return answer
end

-- 1. the message has ended, or the one that it repeats has
local outcome = read_outcome(RECORD)
if outcome.done == message then
  return ended(finished(outcome))
end
local known = fields(own, { 'done', 'kind', 'body', 'done_at', 'awaited', 'follows', 'round_of', 'round' })
if known.done and known.round_of == digits(attempt) and tonumber(known.round) > round then
  return { 'outdated', digits(attempt) } -- a newer copy has arrived
elseif known.done then
  return ended(finished(known))
end
local first = {}
follows = known.follows or follows
if follows ~= '' then
  if outcome.done == follows and outcome.kind ~= 'cancelled' then
    return ended(finished(outcome))
  end
  first = fields(message_key(follows), { 'done', 'kind', 'body', 'done_at', 'awaited', 'awaited_until' })
  if first.done and first.kind ~= 'cancelled' then
    return ended(finished(first))
  end
end

-- 2. a later attempt was published
local run = read_run(is_on_key and RECORD or own)
local reached = math.max(tonumber(known.awaited or '0'), run.run == message and tonumber(run.attempt) or 0)
if attempt < reached then
  return { 'outdated', digits(reached) }
end

-- 3. a worker runs it, or another message of the key
if run.run == message and run.holder == holder and run.is_live then
  return { 'begun', run.fence, '1', run.call or '', '', '' }
end
local is_next = run.run == message and attempt > tonumber(run.attempt)
if (run.is_live or run.is_unknown) and not is_next then
  if run.run ~= message and differs(run.print, print) then
    return different(run.run)
  end
  return run.is_live and held_for_now(held_by_run(run), run.run_until, wait_for_end(run.begun_at)) or held_by_run(run)
end
if at_once > 0 and not is_next then
  redis.call('ZREMRANGEBYSCORE', RUNS, '-inf', digits(now))
  local free = at_once - redis.call('ZCARD', RUNS)
  if free <= 0 then
    local soonest = redis.call('ZRANGE', RUNS, '0', '0', 'WITHSCORES')
    return held_for_now(held(soonest[1], 'running', soonest[2], '0'), soonest[2], wait_for_turn())
  elseif not is_next_in_line(free) then
    local ahead = redis.call('ZRANGE', LINE, '0', '0')[1]
    return held_for_now(held(ahead, 'waiting', now + ttl_ms, '0'), now + ttl_ms, wait_for_turn())
  end
end
if first.awaited_until and not first.done and tonumber(first.awaited_until) > now then
  return held_for_now(held(follows, 'waiting', first.awaited_until, first.awaited), first.awaited_until, wait_for_end(now))
end

-- 4. another message has the seat; this does not block a message that had it before and was put off, not replaced
local seat = read_seat(RECORD)
local has_begun = (known.awaited or run.run == message) and not known.follows
if seat_end ~= 'none' and seat.is_live and seat.seat ~= message and not has_begun then
  if differs(seat.seat_print, print) then
    return different(seat.seat)
  end
  local since = seat.sent_at
  return held_for_now(held_by_seat(seat, seat.text ~= '' and tonumber(ARGV[16]) or 0), seat.seat_until, wait_for_end(since))
end

if seat.seat == message and seat.due_at and seat.due_at > now then
  redis.call('HSET', RECORD, 'sent_at', digits(seat.due_at))
  return { 'early', digits(seat.due_at - now) }
end

-- 5. an outcome is kept for repeats, and this one is a repeat without a claim
if outcome.done and tonumber(outcome.keep_until) > now and seat.seat ~= message and not has_begun then
  if differs(outcome.done_print, print) then
    return different(outcome.done, true)
  end
  return kept(outcome)
end

-- 6. begin. The token exceeds the last one and is not behind the clock, so that it grows even after a loss of data.
local last = tonumber(redis.call('HGET', RECORD, 'token') or '0')
local token = string.format('%.0f', math.max(last + 1, tonumber(time[1]) * 1000000 + tonumber(time[2])))
local where, call = is_on_key and RECORD or own, seat.seat == message and seat.call or run.run == message and run.call or ''
redis.call('HSET', where, 'run', message, 'print', print, 'holder', holder, 'fence', token, 'attempt', digits(attempt),
  'begun_at', digits(now), 'run_until', digits(now + ttl_ms), 'on_lapse', on_lapse, 'task', ARGV[12])
if run.doubt then
  redis.call('HDEL', where, 'doubt')
end
redis.call('HDEL', where, 'run_call', 'next_at')
if call ~= '' then
  redis.call('HSET', where, 'run_call', call)
end
redis.call('HDEL', own, 'awaited_until', 'follows')
if is_on_key then
  take_place(run, print, message, remember_ms)
elseif at_once > 0 then
  if round > 0 then
    redis.call('HSET', own, 'round_of', digits(attempt), 'round', digits(round), 'rounder', holder, 'round_at', digits(now))
  end
  redis.call('ZREM', LINE, message)
  redis.call('ZADD', RUNS, digits(now + ttl_ms), message)
  redis.call('PEXPIRE', RUNS, remember_ms)
end
redis.call('HSET', RECORD, 'token', token, 'task', ARGV[12])
if seat.seat and (seat.seat == message or not seat.is_live) then
  drop(RECORD, SEAT_FIELDS)
  if seat_end == 'start' then
    redis.pcall('PUBLISH', FREED, 'begun')
  end
end
keep(RECORD, key, remember_ms)
if not is_on_key then
  keep(own, key .. ' ' .. message, remember_ms)
end
local calls = at_once > 0 and redis.call('ZCARD', RUNS) < at_once and call_next() or ''
return { 'begun', token, '0', call, calls, not is_next and run.run or '' }
