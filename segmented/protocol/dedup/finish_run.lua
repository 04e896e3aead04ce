#!lua flags=allow-oom
-- uses shared/once.lua
-- Keep the outcome of a run and end it. Safe to run twice: the same run gets a replay.
-- With an effect, its Lua replaces the line `--@effect` below and sets `kind` and `body`.
-- KEYS     7 and on: those of the effect
-- ARGV     1 key   2 message   3 holder   4 token   5 kind   6 body   7 keep_ms   8 remember_ms
--          9 run_on (key, message)   10 and on: those of the effect
-- answers  {"finished", "1" for a replay, body of an effect or "", text of the next message to publish or ""}
--          {"overtaken"}   the run of this token is not the holder's any more; nothing changed. A record that is gone has
--          no other holder, so the outcome is kept, but no effect is done
local key, message, token, kind, body, remember_ms = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local is_on_key = ARGV[9] == 'key'
local where = is_on_key and RECORD or message_key(message)
local run = read_run(where)
redis.call('HLEN', RECORD) -- a key of another type fails here, before the first write

if run.run ~= message or run.holder ~= ARGV[3] or run.fence ~= token then
  for _, place in ipairs({ RECORD, message_key(message) }) do
    local outcome = read_outcome(place)
    if outcome.done == message and outcome.done_fence == token then
      return { 'finished', '1', outcome.kind == 'effect' and outcome.body or '', '' }
    end
  end
  if kind == 'effect' or redis.call('EXISTS', RECORD, where) > 0 then
    return { 'overtaken' }
  end -- the store lost the record, and nobody has begun since: the work is done all the same
  run = { run = message, print = '' }
end

--@effect
drop_run(where, remember_ms)
if is_on_key then
  move_outcome(message, remember_ms)
  redis.call('DEL', message_key(message)) -- its attempts and rounds
  write_outcome(RECORD, run, token, kind, body, now + tonumber(ARGV[7]))
else
  write_outcome(where, run, token, kind, body, now)
  redis.pcall('ZREM', RUNS, message)
  keep(where, key .. ' ' .. message, remember_ms)
end
keep(RECORD, key, remember_ms)
redis.pcall('PUBLISH', FREED, 'finished')
return { 'finished', '0', kind == 'effect' and body or '', not is_on_key and call_next() or '' }
