-- Shared by the operator's scripts, which do not know the name's kind of lock.
-- KEYS  1 lock (string, hash or zset: the type tells the kind)
--       2 fence (hash: token, kind, delay, permits, revoked)   3 freed (channel)
--       4 readers (zset: holder id -> end in ms)   5 writers (zset: waiting holder id -> end in ms)
--       6 opened (channel of readers)   7 entries (set)   8 queue (zset: holder id -> arrival number)
--       9 waiters (hash: holder id -> its place)   10 present (zset: holder id -> server ms)
--       11 turn (prefix: <turn>:<holder id> is the channel of a waiter)
local LOCK, FENCE, FREED, READERS, WRITERS, OPENED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ENTRIES, QUEUE, WAITERS, PRESENT, TURN = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local AFTER_NOW = '(' .. digits(now_ms)

-- Return the kind; nothing for a free name, false for a key that is not a lock.
local function kind_of_lock()
  local key_type = redis.call('TYPE', LOCK).ok
  if key_type == 'none' then
    return nil
  elseif key_type == 'zset' then
    return redis.call('ZCOUNT', LOCK, AFTER_NOW, '+inf') > 0 and 'semaphore' or nil
  elseif key_type == 'string' then
    if string.match(redis.call('GET', LOCK), '^%d+%.%d%d%d%d%d%d$') then
      return 'get_set'
    end
    local noted = redis.call('HGET', FENCE, 'kind')
    return (noted == 'fair' or noted == 'quorum') and noted or 'lock'
  elseif key_type == 'hash' then
    if redis.call('HEXISTS', LOCK, 'mode') == 1 then
      return 'read_write'
    end
    return string.match(redis.call('HKEYS', LOCK)[1], '^owner:') and 'reentrant'
        or false
  end
  return false
end

-- Return the last token granted; "" for kinds without one.
local function last_token(kind)
  local token = kind ~= 'quorum' and kind ~= 'get_set' and redis.call('HGET', FENCE, 'token')
  return token or ''
end
