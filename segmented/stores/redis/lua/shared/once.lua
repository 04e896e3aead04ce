-- Shared by the scripts about deduplication records.
-- KEYS  1 record (hash with PX, see below)
--       2 messages (prefix: <messages>:<message> is what is known of one message; hash with PX, the fields of run and
--         outcome, and `awaited`: the attempt that is to come, `round`: how often its copy was sent round)
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
  return { 'held', message, state, free_in, attempt or '0', again and '1' or '0' }
end

local function held_by_run(run, again)
  return held(run.run, run.is_unknown and 'unknown' or 'running', run.run_until, run.attempt, again)
end

local function finished(outcome)
  if outcome.kind == 'cancelled' then
    return { 'cancelled' }
  end
  return { 'finished', outcome.done, outcome.kind, outcome.body, digits(math.max(0, now - tonumber(outcome.done_at))) }
end

local function differs(one, other)
  return one and other and one ~= '' and other ~= '' and one ~= other
end

-- Let a record or message live for as long as anything in it may matter, and `remember_ms` longer; note in the claims when
-- what holds it lapses.
local function keep(key, member, remember_ms)
  local left = fields(key, { 'seat', 'seat_until', 'run', 'run_until', 'keep_until', 'on_lapse', 'doubt' })
  local seat_until, run_until = tonumber(left.seat_until or '0'), tonumber(left.run_until or '0')
  if left.run and left.on_lapse == 'unknown' then
    redis.call('PERSIST', key)
  else
    local last = math.max(now, seat_until, run_until, tonumber(left.keep_until or '0'))
    redis.call('PEXPIRE', key, digits(last - now + tonumber(remember_ms)))
  end
  if left.run and left.doubt then
    redis.call('ZADD', CLAIMS, '+inf', member)
  elseif left.run and left.seat then
    redis.call('ZADD', CLAIMS, digits(math.min(seat_until, run_until)), member)
  elseif left.run or left.seat then
    redis.call('ZADD', CLAIMS, digits(left.run and run_until or seat_until), member)
  else
    redis.call('ZREM', CLAIMS, member)
  end
end

local function drop(key, names)
  redis.call('HDEL', key, unpack(names))
end
