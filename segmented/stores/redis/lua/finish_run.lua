#!lua flags=allow-oom
-- uses shared/once.lua
-- Keep the outcome of a run and end it. Safe to run twice: the same run is told that it was kept.
-- Where an effect goes with it, its Lua takes the place of the line `--@effect` below; it gives `kind` and `body`.
-- KEYS     5 and on: those of the effect
-- ARGV     1 key   2 message   3 holder   4 token   5 kind   6 body   7 keep_ms   8 remember_ms
--          9 seat_end (start, end, time, none)   10 run_on (key, message)   11 and on: those of the effect
-- answers  {"finished", "1" when a replay, body of an effect or ""}
--          {"overtaken"}   the run is not the holder's any more; nothing changed
local key, message, token, kind, body, remember_ms = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local is_on_key = ARGV[10] == 'key'
local where = is_on_key and RECORD or message_key(message)
local run = read_run(where)

if run.run ~= message or run.holder ~= ARGV[3] then
  for _, place in ipairs({ RECORD, message_key(message) }) do
    local outcome = fields(place, OUTCOME_FIELDS)
    if outcome.done == message and outcome.done_fence == token then
      return { 'finished', '1', outcome.kind == 'effect' and outcome.body or '' }
    end
  end
  return { 'overtaken' }
end

--@effect
local keep_until = now + tonumber(ARGV[7])
local print = run.print
local function write(place, until_ms)
  redis.call('HSET', place, 'done', message, 'done_fence', token, 'done_print', print, 'done_at', digits(now),
    'kind', kind, 'body', body, 'keep_until', digits(until_ms))
end

drop(where, RUN_FIELDS)
if is_on_key then
  -- The last outcome makes room; copies of its message still have to find it.
  local last = fields(RECORD, OUTCOME_FIELDS)
  local left = last.done and tonumber(last.done_at) + tonumber(remember_ms) - now or 0
  if left > 0 and last.done ~= message then
    local old = message_key(last.done)
    redis.call('HSET', old, 'done', last.done, 'done_fence', last.done_fence, 'done_print', last.done_print,
      'done_at', last.done_at, 'kind', last.kind, 'body', last.body)
    redis.call('PEXPIRE', old, digits(left))
  end
  redis.call('DEL', message_key(message)) -- what it awaited
  write(RECORD, keep_until)
else
  write(where, now)
  keep(where, key .. ' ' .. message, remember_ms)
  local seat = read_seat(RECORD)
  if ARGV[9] == 'time' and seat.is_live and seat.seat == message then
    write(RECORD, tonumber(seat.seat_until))
    drop(RECORD, SEAT_FIELDS) -- the kept outcome holds the key until then
  end
end
keep(RECORD, key, remember_ms)
redis.call('PUBLISH', FREED, 'finished')
return { 'finished', '0', kind == 'effect' and body or '' }
