#!lua flags=allow-oom
-- uses shared/once.lua
-- Free the expired part of a claim, and wake its waiters. Safe to run twice. A live claim is never touched, and the rest
-- of the record keeps at least its previous lifetime.
-- ARGV     1 key   2 message, or "" for the key itself   3 remember_ms
-- answers  {"freed"}   {"unknown"}   its holder died in a run that must not be repeated   {"held"}   it is alive
local key, message = ARGV[1], ARGV[2]
local where = message == '' and RECORD or message_key(message)
local member = message == '' and key or (key .. ' ' .. message)
if redis.call('EXISTS', where) == 0 then
  redis.call('ZREM', CLAIMS, member)
  return { 'freed' }
end
local result, left = 'held', redis.call('PTTL', where)
local seat, run = read_seat(where), read_run(where)
if seat.seat and not seat.is_live then
  drop(where, SEAT_FIELDS)
  result = 'freed'
end
if run.is_unknown and not run.doubt then
  redis.call('HSET', where, 'doubt', '1')
  result = 'unknown'
elseif run.run and not run.is_live and not run.is_unknown then
  drop_run(where, ARGV[3])
  note_attempt(run, ARGV[3])
  if where == RECORD then
    redis.call('HSET', RECORD, 'reaped', run.run, 'reaped_print', run.print)
  end
  result = 'freed'
end
if result == 'held' then
  note_claim(where, member) -- it may have been noted for a claim that is over
  return { result }
end
keep(where, member, ARGV[3])
local kept_ms = redis.call('PTTL', where)
if kept_ms >= 0 and kept_ms < left then
  redis.call('PEXPIRE', where, left)
end
redis.pcall('PUBLISH', FREED, result)
return { result }
