#!lua flags=no-writes
-- uses shared/operator.lua
-- Return the state of a lock of any kind. Holder ids are cut off, because a complete one proves ownership.
-- ARGV     1 holders_max   2 characters to return of each holder id
-- answers  {"wrong_kind"} if the key is not a lock   {"free"}
--          {"held", kind, token or "", ms until the name is free; -1 for never, "1" during a lock-delay, else "0",
--           permits or "", waiters or "", listeners or "", number of holders, then five strings per holder:
--           start of its id, mode, ms until its end; -1 for never, owner or "", how often it has entered}
local holders_max, shown = tonumber(ARGV[1]), tonumber(ARGV[2])
local kind = kind_of_lock()
if kind == nil then
  return { 'free' }
elseif not kind then
  return { 'wrong_kind' }
end

local free_in_ms = redis.call('PTTL', LOCK)
local is_delayed, permits, waiters, holder_count = false, '', '', 1
local holders = {}

local function add(holder_id, mode, remaining_ms, owner, count)
  local start = string.gsub(string.sub(holder_id, 1, shown), '[^ -~]', '?')
  for _, value in ipairs({ start, mode, digits(remaining_ms), owner or '', count or '1' }) do
    holders[#holders + 1] = value
  end
end

-- Add the live members of a sorted set, the earliest end first.
local function add_all(key, mode)
  holder_count = redis.call('ZCOUNT', key, AFTER_NOW, '+inf')
  local found = redis.call('ZRANGE', key, AFTER_NOW, '+inf', 'BYSCORE', 'LIMIT', 0, holders_max, 'WITHSCORES')
  for index = 1, #found, 2 do
    add(found[index], mode, tonumber(found[index + 1]) - now_ms)
  end
end

-- 1. by kind: the holders and the known waiters
if kind == 'semaphore' then
  permits = redis.call('HGET', FENCE, 'permits') or ''
  add_all(LOCK, 'permit')
elseif kind == 'reentrant' then
  local found = redis.call('HGETALL', LOCK)
  add('', 'exclusive', free_in_ms, string.gsub(found[1], '^owner:', ''), found[2])
elseif kind == 'read_write' then
  waiters = digits(redis.call('ZCOUNT', WRITERS, AFTER_NOW, '+inf'))
  if redis.call('HGET', LOCK, 'mode') == 'write' then
    add(redis.call('HGET', LOCK, 'holder') or '', 'write', free_in_ms)
  else
    add_all(READERS, 'read')
  end
else
  local holder = redis.call('GET', LOCK)
  local remaining_ms = free_in_ms
  if kind == 'fair' then -- a process that was handed the lock and has not claimed it yet is a waiter, too
    local present = redis.call('ZCOUNT', PRESENT, AFTER_NOW, '+inf')
    waiters = digits(math.max(0, present - redis.call('HEXISTS', WAITERS, holder)))
  elseif kind == 'lock' then
    local delay_ms, whose = string.match(redis.call('HGET', FENCE, 'delay') or '', '^(%d+) (.*)$')
    if whose == holder and free_in_ms >= 0 then
      remaining_ms = free_in_ms - tonumber(delay_ms)
      is_delayed = remaining_ms <= 0
    end
  end
  if is_delayed then
    holder_count = 0
  else
    add(holder, 'exclusive', remaining_ms)
  end
end

-- 2. each node of a cluster counts only its own subscriptions
local listeners = ''
local cluster = redis.pcall('INFO', 'cluster')
local is_alone = type(cluster) == 'string' and string.find(cluster, 'cluster_enabled:0', 1, true)
if is_alone and kind ~= 'fair' and kind ~= 'get_set' then -- their waiters use other channels, or none
  local found = redis.pcall('PUBSUB', 'NUMSUB', FREED, OPENED)
  if not found.err then
    listeners = digits(found[2] + found[4])
  end
end

local flag = is_delayed and '1' or '0'
local reply = { 'held', kind, last_token(kind), digits(free_in_ms), flag, permits, waiters, listeners, digits(holder_count) }
for _, value in ipairs(holders) do
  reply[#reply + 1] = value
end
return reply
