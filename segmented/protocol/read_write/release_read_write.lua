#!lua flags=allow-oom
-- uses shared/clock.lua
-- End the writer's lease, a reader's, or a writer's waiting, and wake one waiter per process of those that may now enter.
-- Safe to run twice: a repeat changes nothing and wakes no waiter.
-- KEYS     1 lock (hash: mode, token, holder)   2 fence (unused)   3 readers (sorted set: holder id -> end in ms)
--          4 writers (sorted set: waiting holder id -> end in ms)
--          5 freed (channel of writers)   6 opened (channel of readers)
-- ARGV     1 holder_id
-- answers  {"released"}   {"lost"}
local lock, readers, writers, freed, opened, holder_id = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[1]

local found = redis.call('HMGET', lock, 'mode', 'holder')
local mode, holder = found[1], found[2]

-- 1. the writer: readers are notified too, because those that a waiting writer blocks must learn until when
if mode == 'write' and holder == holder_id then
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', freed, 'freed')
  redis.pcall('PUBLISH', opened, 'freed')
  return { 'released' }
end

-- 2. a reader: a writer may enter after the last one, and learns of an earlier end when the latest lease is released
local own_end = mode == 'read' and tonumber(redis.call('ZSCORE', readers, holder_id) or '0') or 0
if own_end > now_ms then
  redis.call('ZREM', readers, holder_id)
  local latest = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  local latest_end = latest[2] and math.min(tonumber(latest[2]), 9007199254740991) or 0
  if latest_end <= now_ms then
    redis.call('DEL', lock, readers)
  else
    redis.call('PEXPIREAT', lock, digits(latest_end))
    redis.call('PEXPIREAT', readers, digits(latest_end))
  end
  if latest_end < own_end then
    redis.pcall('PUBLISH', freed, 'freed')
  end
  return { 'released' }
end

-- 3. a writer that stops waiting: the last one lets readers in again
local present_until = tonumber(redis.call('ZSCORE', writers, holder_id) or '0')
redis.call('ZREM', writers, holder_id)
if present_until > now_ms and mode ~= 'write' then
  local last_writer = redis.call('ZRANGE', writers, -1, -1, 'WITHSCORES')
  if not last_writer[2] or tonumber(last_writer[2]) <= now_ms then
    redis.pcall('PUBLISH', opened, 'freed')
  end
end
return { 'lost' }
