-- Shared by the scripts about deduplication records.
-- KEYS  1 record (hash with PX, see below)
--       2 messages (prefix: <messages>:<message> is the state of one message; hash with PX: the fields of run and
--         outcome; `awaited`: the highest attempt it has reached; `awaited_until`: until when that attempt is due;
--         `follows`: the message that took its place after its worker died, and whose outcome it gets;
--         round_of (attempt), round, rounder (holder), round_at: the newest copy that arrived and had to wait;
--         back_at: when it is to come back; text: what a worker publishes to call it; called_at)
--       3 claims (zset: key, or "key message" -> server ms at which its claim expires; +inf for the unknown state)
--       4 freed (channel: one message when the key may be free or has an outcome)
--       5 runs (zset: message -> server ms at which its lease ends; the runs of a rule that lets several run at once)
--       6 line (zset: message -> server us at which it first had to wait for one of those runs)
-- Fields of a record
--   seat     seat (message), seat_print, seat_until, seat_since, seat_attempt, sent_at; of a rule that runs the latest
--            call: seat_call (its arguments), due_at (it does not begin before); expires_at (of the call that expires
--            last; 0: a repeat does not), seat_text (what is published if the message is lost)
--   run      run (message), print, holder, fence, attempt, begun_at, run_until, on_lapse, doubt (1: unknown state),
--            run_call (the arguments of seat_call)
--   outcome  done (message), done_fence, done_print, done_at, kind, body, keep_until
--   both     token (the highest so far), task; next_at: when the next copy that waits may come
--            back
local RECORD, MESSAGES, CLAIMS, FREED, RUNS, LINE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local RUN_FIELDS = { 'run', 'print', 'holder', 'fence', 'attempt', 'begun_at', 'run_until', 'on_lapse', 'doubt', 'run_call' }
local SEAT_FIELDS = { 'seat', 'seat_print', 'seat_until', 'seat_since', 'seat_attempt', 'sent_at', 'seat_call', 'due_at',
  'expires_at', 'seat_text' }
local OUTCOME_FIELDS = { 'done', 'done_fence', 'done_print', 'done_at', 'kind', 'body', 'keep_until' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local CLAIM_KEPT_MS = 7 * 86400000
local EXACT_MAX = 9007199254740992

-- A number that another program has overwritten is refused, before anything is written.
local function refuse(field, key)
  error({ err = 'UNREADABLE ' .. field .. ' ' .. key })
end

-- The moment that a field says, for how long a key is kept; now, if it cannot be read. Never fails, since others have been
-- written before.
local function moment(text)
  local found = text and tonumber(text)
  return found and found >= 0 and found < EXACT_MAX and found or now
end

local function message_key(message)
  return MESSAGES .. ':' .. message
end

-- Read some fields as a table by name; a missing field is nil.
local function fields(key, names)
  local values = redis.call('HMGET', key, unpack(names))
  local found = {}
  for index, name in ipairs(names) do
    found[name] = values[index] or nil
  end
  return found
end

-- The three parts of a record, as `fields` would read them. Written out because every task reads each part twice, and a
-- table created with its fields costs less than one that grows.
local function read_seat(key)
  local v = redis.call('HMGET', key, unpack(SEAT_FIELDS))
  local ends = v[1] and tonumber(v[3] or '')
  if v[1] and not (ends and ends >= 0 and ends < EXACT_MAX) then
    refuse('seat_until', key)
  elseif v[1] and not (tonumber(v[4] or '') and tonumber(v[6] or '')) then
    refuse('seat_since', key)
  end
  return {
    seat = v[1] or nil,
    seat_print = v[2] or nil,
    seat_until = v[3] or nil,
    seat_since = v[4] or nil,
    seat_attempt = v[5] or nil,
    sent_at = v[6] or nil,
    call = v[7] or nil,
    due_at = v[8] and moment(v[8]) or nil,
    expires_at = tonumber(v[9] or ''),
    text = v[10] or '',
    is_live = ends and ends > now,
  }
end

local function read_run(key)
  local v = redis.call('HMGET', key, unpack(RUN_FIELDS))
  local ends = v[1] and tonumber(v[7] or '')
  if v[1] and not (ends and ends >= 0 and ends < EXACT_MAX) then
    refuse('run_until', key)
  elseif v[1] and not tonumber(v[5] or '') then
    refuse('attempt', key)
  end
  local is_live = ends and not v[9] and ends > now
  return {
    run = v[1] or nil,
    print = v[2] or v[1] and '' or nil,
    holder = v[3] or nil,
    fence = v[4] or nil,
    attempt = v[5] or nil,
    begun_at = v[6] or nil,
    run_until = v[7] or nil,
    on_lapse = v[8] or nil,
    doubt = v[9] or nil,
    call = v[10] or nil,
    is_live = is_live,
    is_unknown = v[1] and not is_live and v[8] == 'unknown',
  }
end

local function read_outcome(key)
  local v = redis.call('HMGET', key, unpack(OUTCOME_FIELDS))
  if v[1] and not (tonumber(v[4] or '') and tonumber(v[7] or '0')) then
    refuse(tonumber(v[4] or '') and 'keep_until' or 'done_at', key)
  end
  return {
    done = v[1] or nil,
    done_fence = v[2] or nil,
    done_print = v[3] or nil,
    done_at = v[4] or nil,
    kind = v[5] or nil,
    body = v[6] or nil,
    keep_until = v[7] or nil,
  }
end

-- Return the answer for a seat or run that is in the way.
local function held(message, state, ends, attempt, again)
  local free_in = state == 'unknown' and '-1' or digits(math.max(0, tonumber(ends) - now))
  return { 'held', message, state, free_in, attempt or '0', again and '1' or '0', '0', '0', '', '0' }
end

-- Return the answer for a message that waits. One that has waited for `resend_ms` (0: never) may be lost, and is published
-- again by the process that gets this answer.
local function held_by_seat(seat, resend_ms)
  local answer = held(seat.seat, 'waiting', seat.seat_until, seat.seat_attempt, false)
  if resend_ms > 0 and now - tonumber(seat.sent_at) >= resend_ms then
    redis.call('HSET', RECORD, 'sent_at', digits(now))
    answer[9], answer[10] = seat.text, '1'
  end
  return answer
end

local function held_by_run(run)
  return held(run.run, run.is_unknown and 'unknown' or 'running', run.run_until, run.attempt, false)
end

-- Return the answer that repeats get for an outcome of any kind.
local function kept(outcome)
  return { 'finished', outcome.done, outcome.kind, outcome.body, digits(math.max(0, now - tonumber(outcome.done_at))) }
end

local function finished(outcome)
  return outcome.kind == 'cancelled' and { 'cancelled' } or kept(outcome)
end

local function differs(one, other)
  return one and other and one ~= '' and other ~= '' and one ~= other
end

-- The answer to a call that may not share the key with `message`; with its task, and whether only its outcome is left.
local function different(message, is_kept)
  return { 'differs', message, redis.call('HGET', RECORD, 'task') or '', is_kept and '1' or '0' }
end

-- Note in the claims when the claim on a record or message expires; `left` is the result of `read_left`.
local function read_left(key)
  return redis.call('HMGET', key, 'seat', 'seat_until', 'run', 'run_until', 'doubt', 'keep_until', 'on_lapse')
end

-- The claims are a list for those who look: one of another type stops no task. Those that have long expired leave it; a
-- run that must not be repeated stays, as it becomes unknown by itself.
local function note_left(left, member)
  local seat, seat_until, run, run_until, doubt = left[1], left[2], left[3], left[4], left[5]
  redis.pcall('ZREMRANGEBYSCORE', CLAIMS, '-inf', digits(now - CLAIM_KEPT_MS))
  if run and (doubt or left[7] == 'unknown') then
    redis.pcall('ZADD', CLAIMS, '+inf', member)
  elseif run and seat then
    redis.pcall('ZADD', CLAIMS, digits(math.min(moment(seat_until), moment(run_until))), member)
  elseif run or seat then
    redis.pcall('ZADD', CLAIMS, digits(moment(run and run_until or seat_until)), member)
  else
    redis.pcall('ZREM', CLAIMS, member)
  end
end

local function note_claim(key, member)
  note_left(read_left(key), member)
end

-- Keep a record or message for as long as anything in it may matter plus `remember_ms`; note its claim.
local function keep(key, member, remember_ms)
  local left = read_left(key)
  local seat_until, run, run_until, keep_until, on_lapse = left[2], left[3], left[4], left[6], left[7]
  if run and on_lapse == 'unknown' then
    redis.call('PERSIST', key)
  else
    local last = math.max(now, moment(seat_until), moment(run_until), moment(keep_until))
    redis.call('PEXPIRE', key, digits(last - now + tonumber(remember_ms)))
  end
  note_left(left, member)
end

-- Write fields of a message that may exist already, and keep it for at least `left_ms`.
local function note_message(message, left_ms, ...)
  local own = message_key(message)
  local left = redis.call('PTTL', own) -- -2: unknown so far, -1: it has a run that must not be forgotten
  redis.call('HSET', own, ...)
  if left ~= -1 and left < tonumber(left_ms) then
    redis.call('PEXPIRE', own, digits(tonumber(left_ms)))
  end
end

local function drop(key, names)
  redis.call('HDEL', key, unpack(names))
end

-- End a run; the record that was kept because of it may expire again.
local function drop_run(where, remember_ms)
  drop(where, RUN_FIELDS)
  if redis.call('PTTL', where) == -1 then
    redis.call('PEXPIRE', where, remember_ms)
  end
end

-- Remember the attempt of a run without an outcome, to recognise copies of earlier attempts.
local function note_attempt(run, remember_ms)
  if tonumber(run.attempt) > 0 then
    note_message(run.run, remember_ms, 'awaited', run.attempt)
  end
end

-- A message whose worker died is a repeat of the one that takes its place, if both ask for the same; `run` is its run.
local function take_place(run, print, successor, remember_ms)
  if run.run and run.run ~= successor and not differs(run.print, print) then
    note_message(run.run, remember_ms, 'follows', successor)
  end
end

local function write_outcome(where, run, fence, kind, body, keep_until)
  redis.call('HSET', where, 'done', run.run, 'done_fence', fence, 'done_print', run.print, 'done_at', digits(now),
    'kind', kind, 'body', body, 'keep_until', digits(keep_until))
end

-- Called before another outcome replaces this one in the record: copies of its message still have to find it.
local function move_outcome(next_message, remember_ms)
  local last = fields(RECORD, OUTCOME_FIELDS)
  local left = last.done and moment(last.done_at) + tonumber(remember_ms) - now or 0
  if left > 0 and last.done ~= next_message then
    note_message(last.done, left, 'done', last.done, 'done_fence', last.done_fence or '', 'done_print', last.done_print or '',
      'done_at', digits(moment(last.done_at)), 'kind', last.kind or '', 'body', last.body or '')
  end
end

local CALLED_MS, LOOKED_AT_MAX = 30000, 32

-- The text of the first message in the line that nobody has called, for a worker to publish; "" if there is none. Never
-- fails, since others have been written before.
local function call_next()
  local found = redis.pcall('ZRANGE', LINE, '0', digits(LOOKED_AT_MAX - 1))
  for _, other in ipairs(found.err and {} or found) do
    local its = message_key(other)
    local v = redis.pcall('HMGET', its, 'text', 'called_at')
    if not v.err and v[1] and v[1] ~= '' and (not v[2] or moment(v[2]) + CALLED_MS < now) then
      redis.call('HSET', its, 'called_at', digits(now))
      return v[1]
    end
  end
  return ''
end
