-- Shared by the scripts about deduplication records.
-- KEYS  1 record (hash with PX, see below)
--       2 messages (prefix: <messages>:<message> is what is known of one message; hash with PX, the fields of run and
--         outcome, and `awaited`: the highest attempt it has reached, `awaited_until`: while that is yet to come,
--         `replaced_by`: the message that took its seat,
--         round_of (attempt), round, rounder (holder), round_at: the newest copy that arrived and had to wait)
--       3 claims (zset: key, or "key message" -> server ms at which what holds it lapses; +inf for the unknown state)
--       4 freed (channel: one message when the key may be free, or has an outcome)
-- Fields of a record
--   seat     seat (message), seat_print, seat_until, seat_since, seat_attempt, sent_at
--   run      run (message), print, holder, fence, attempt, begun_at, run_until, on_lapse, doubt (1: unknown state)
--   outcome  done (message), done_fence, done_print, done_at, kind, body, keep_until
--   both     token (the highest so far), task
local RECORD, MESSAGES, CLAIMS, FREED = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local RUN_FIELDS = { 'run', 'print', 'holder', 'fence', 'attempt', 'begun_at', 'run_until', 'on_lapse', 'doubt' }
local SEAT_FIELDS = { 'seat', 'seat_print', 'seat_until', 'seat_since', 'seat_attempt', 'sent_at' }
local OUTCOME_FIELDS = { 'done', 'done_fence', 'done_print', 'done_at', 'kind', 'body', 'keep_until' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local function message_key(message)
  return MESSAGES .. ':' .. message
end

-- Read some fields as a table by name; a field that is missing is nil.
local function fields(key, names)
  local values = redis.call('HMGET', key, unpack(names))
  local found = {}
  for index, name in ipairs(names) do
    found[name] = values[index] or nil
  end
  return found
end

local function read_seat(key)
  local seat = fields(key, SEAT_FIELDS)
  seat.is_live = seat.seat ~= nil and tonumber(seat.seat_until) > now
  return seat
end

local function read_run(key)
  local run = fields(key, RUN_FIELDS)
  run.is_live = run.run ~= nil and not run.doubt and tonumber(run.run_until) > now
  run.is_unknown = run.run ~= nil and not run.is_live and run.on_lapse == 'unknown'
  return run
end

-- Return the answer for a seat or run that is in the way.
local function held(message, state, ends, attempt, again)
  local free_in = state == 'unknown' and '-1' or digits(math.max(0, tonumber(ends) - now))
  return { 'held', message, state, free_in, attempt or '0', again and '1' or '0', '0' }
end

local function held_by_run(run)
  return held(run.run, run.is_unknown and 'unknown' or 'running', run.run_until, run.attempt, false)
end

-- Return the answer for an outcome that is given to repeats, whatever it is.
local function kept(outcome)
  return { 'finished', outcome.done, outcome.kind, outcome.body, digits(math.max(0, now - tonumber(outcome.done_at))) }
end

local function finished(outcome)
  return outcome.kind == 'cancelled' and { 'cancelled' } or kept(outcome)
end

local function differs(one, other)
  return one and other and one ~= '' and other ~= '' and one ~= other
end

-- Note in the claims when what holds a record or message lapses.
local function note_claim(key, member)
  local left = fields(key, { 'seat', 'seat_until', 'run', 'run_until', 'doubt' })
  if left.run and left.doubt then
    redis.call('ZADD', CLAIMS, '+inf', member)
  elseif left.run and left.seat then
    redis.call('ZADD', CLAIMS, digits(math.min(tonumber(left.seat_until), tonumber(left.run_until))), member)
  elseif left.run or left.seat then
    redis.call('ZADD', CLAIMS, left.run and left.run_until or left.seat_until, member)
  else
    redis.call('ZREM', CLAIMS, member)
  end
end

-- Let a record or message live for as long as anything in it may matter, and `remember_ms` longer; note its claim.
local function keep(key, member, remember_ms)
  local left = fields(key, { 'seat_until', 'run', 'run_until', 'keep_until', 'on_lapse' })
  if left.run and left.on_lapse == 'unknown' then
    redis.call('PERSIST', key)
  else
    local last = math.max(now, tonumber(left.seat_until or '0'), tonumber(left.run_until or '0'),
      tonumber(left.keep_until or '0'))
    redis.call('PEXPIRE', key, digits(last - now + tonumber(remember_ms)))
  end
  note_claim(key, member)
end

-- Write fields of a message that may be known already, and let it live for `left_ms` at least.
local function note_message(message, left_ms, ...)
  local own = message_key(message)
  local left = redis.call('PTTL', own) -- -2: unknown so far, -1: a run of it is not to be forgotten
  redis.call('HSET', own, ...)
  if left ~= -1 and left < tonumber(left_ms) then
    redis.call('PEXPIRE', own, digits(tonumber(left_ms)))
  end
end

local function drop(key, names)
  redis.call('HDEL', key, unpack(names))
end

-- End a run; what was not to be forgotten because of it may be.
local function drop_run(where, remember_ms)
  drop(where, RUN_FIELDS)
  if redis.call('PTTL', where) == -1 then
    redis.call('PEXPIRE', where, remember_ms)
  end
end

-- Remember how far a run without an outcome came, so that a copy of an earlier attempt is recognised as one.
local function note_attempt(run, remember_ms)
  if tonumber(run.attempt) > 0 then
    note_message(run.run, remember_ms, 'awaited', run.attempt)
  end
end

-- See to it that a message never begins, neither now nor when it is due.
local function note_cancelled(message, due, remember_ms)
  note_message(message, math.max(0, due - now) + tonumber(remember_ms),
    'done', message, 'kind', 'cancelled', 'body', '', 'done_at', digits(now))
end

local function write_outcome(where, run, fence, kind, body, keep_until)
  redis.call('HSET', where, 'done', run.run, 'done_fence', fence, 'done_print', run.print, 'done_at', digits(now),
    'kind', kind, 'body', body, 'keep_until', digits(keep_until))
end

-- Before another outcome takes its place in the record: copies of its message still have to find the last one.
local function move_outcome(next_message, remember_ms)
  local last = fields(RECORD, OUTCOME_FIELDS)
  local left = last.done and tonumber(last.done_at) + tonumber(remember_ms) - now or 0
  if left > 0 and last.done ~= next_message then
    note_message(last.done, left, 'done', last.done, 'done_fence', last.done_fence, 'done_print', last.done_print,
      'done_at', last.done_at, 'kind', last.kind, 'body', last.body)
  end
end
