#!lua
-- uses shared/once.lua
-- Read the full state of a key, or of one of its messages.
-- ARGV     1 key   2 message, or ""
-- answers  {now_ms, task or "", fields of the seat, of the run, of the outcome}, each in the order of the lists above,
--          "" for a missing one   {} if there is no record
local where = ARGV[2] == '' and RECORD or message_key(ARGV[2])
if redis.call('EXISTS', where) == 0 then
  return {}
end
local answer = { digits(now), redis.call('HGET', where, 'task') or '' }
for _, names in ipairs({ SEAT_FIELDS, RUN_FIELDS, OUTCOME_FIELDS }) do
  for _, value in ipairs(redis.call('HMGET', where, unpack(names))) do
    answer[#answer + 1] = value or ''
  end
end
return answer
