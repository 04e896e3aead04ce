-- uses shared/clock.lua
-- Shared by the operator's scripts, which do not know the name's kind of lock. The `kind.lua` of each kind follows.
-- KEYS  1 lock (string, hash or zset)
--       2 fence (hash: token, kind, delay, permits, revoked)   3 freed (channel)
--       4 and the next ones belong to single kinds, whose files name them
local LOCK, FENCE, FREED = KEYS[1], KEYS[2], KEYS[3]

local AFTER_NOW = '(' .. digits(now_ms)

-- Each kind:
--   name             as in its record
--   type             of its main key
--   is_its_key()     whether a key of this type is this kind's; without it, the fence says so in its field `kind`
--   is_free()        whether its key has no holder left, for a kind with is_its_key; without it, every key has one
--   has_token        whether the fence keeps the last token of this kind
--   show(view)       add the holders (`add`, `add_all`), and set the view's permits, waiters or is_delayed; without it, the
--                    string is the only holder
--   generation()     the token and the mode of the holder; false if each holder has a token of its own; without it, the
--                    last token, and exclusive
--   has_listeners    whether waiters subscribe to `freed`
--   opened           another channel to which waiters of this kind subscribe
--   companions       other keys that a revoke deletes
--   turns()          the waiters' own channels, those of the first waiters first
local KINDS = {}
local PLAIN -- the kind of a string that nobody else claims, such as the key of another client

-- Return the kind; nil for a free name, false for a key that is not a lock.
local function kind_of_lock()
  local key_type = redis.call('TYPE', LOCK).ok
  if key_type == 'none' then
    return nil
  end
  for _, kind in ipairs(KINDS) do
    if kind.type == key_type and kind.is_its_key and kind.is_its_key() then
      if kind.is_free and kind.is_free() then
        return nil
      end
      return kind
    end
  end
  for _, kind in ipairs(KINDS) do
    if kind.type == key_type and not kind.is_its_key and redis.call('HGET', FENCE, 'kind') == kind.name then
      return kind
    end
  end
  return key_type == 'string' and PLAIN
end

-- Return the last token granted; "" for kinds without one.
local function last_token(kind)
  return kind.has_token and redis.call('HGET', FENCE, 'token') or ''
end

local OF_OURS = string.rep('[%w_-]', 22) .. '@([%w.-]+:%d+)$'

local function add(view, holder_id, mode, remaining_ms, owner, count)
  local start = string.gsub(string.sub(holder_id, 1, view.shown), '[^ -~]', '?')
  local process = string.match(owner or holder_id, OF_OURS) or ''
  for _, value in ipairs({ start, mode, digits(remaining_ms), owner or '', count or '1', process }) do
    view.holders[#view.holders + 1] = value
  end
end

-- Add the live members of a sorted set, the earliest end first.
local function add_all(view, key, mode)
  view.holder_count = redis.call('ZCOUNT', key, AFTER_NOW, '+inf')
  local found = redis.call('ZRANGE', key, AFTER_NOW, '+inf', 'BYSCORE', 'LIMIT', 0, view.holders_max, 'WITHSCORES')
  for index = 1, #found, 2 do
    add(view, found[index], mode, tonumber(found[index + 1]) - now_ms)
  end
end

-- Another library's lock, or ours in its place: all keys of a string, or a hash of owners.
local function other(name, has_token, owners)
  local kind = { name = name, has_token = has_token, has_listeners = has_token, companions = {} }
  kind.show = owners and function(view)
    view.holder_count = #owners / 2
    for index = 1, #owners, 2 do
      add(view, '', 'exclusive', view.free_in_ms, owners[index], owners[index + 1])
    end
  end
  return kind
end

local REDISSON = '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$'

-- Return the kind in a place, as above, with the type of a key that is not a lock. The place is "" for a name of ours,
-- "segment" for a pool's key, and "key" for a key that may be anybody's.
local function kind_at(place)
  local key_type = redis.call('TYPE', LOCK).ok
  if place == '' then
    return kind_of_lock()
  elseif key_type == 'none' then
    return nil
  elseif place == 'segment' then
    return key_type == 'string' and other('segment', false), key_type
  elseif key_type == 'string' then
    local value = redis.call('GET', LOCK)
    if string.match(value, OF_OURS) then
      return other('compat', true)
    elseif string.match(value, '^' .. string.rep('%x', 32) .. '$') then
      return other('redis-py', false)
    elseif string.match(LOCK, '^lock:') and string.match(value, '^' .. string.rep('[%w+/]', 24) .. '$') then
      return other('python-redis-lock', false)
    elseif type(redis.pcall('HGET', FENCE, 'token')) == 'string' then
      return other('compat', true)
    end
  elseif key_type == 'hash' and redis.call('HLEN', LOCK) <= 64 then
    local owners, found = {}, redis.call('HGETALL', LOCK)
    for index = 1, #found, 2 do
      if string.match(found[index], REDISSON) then
        owners[#owners + 1], owners[#owners + 2] = found[index], found[index + 1]
      end
    end
    if #owners > 0 then
      return other('Redisson', false, owners)
    end
  end
  return false, key_type
end
