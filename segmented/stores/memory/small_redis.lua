-- A small Redis, so that `MemoryStore` runs the scripts that ship. It lives in one Lua 5.1 runtime of this process; each
-- `MemoryModel` is a keyspace of its own: a table that every call hands in.
--
-- Commands, as far as our scripts and codecs use them, and those that effects of users most likely do (`StoreEffect`):
--   keys         COPY DEL EXISTS EXPIRE FLUSHDB KEYS PERSIST PEXPIRE PEXPIREAT PTTL RENAME SCAN TYPE UNLINK
--   strings      GET GETSET INCR INCRBY MGET SET (EX PX NX XX GET KEEPTTL) SETNX
--   hashes       HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSCAN HSET HSETNX
--   sets         SADD SCARD SISMEMBER SMEMBERS SREM
--   sorted sets  ZADD (NX XX GT LT) ZCARD ZCOUNT ZMSCORE ZRANGE (BYSCORE LIMIT WITHSCORES) ZRANGEBYSCORE ZRANK ZREM
--                ZREMRANGEBYSCORE ZSCAN ZSCORE
--   streams      XADD XDEL XINFO XLEN XRANGE XREVRANGE XTRIM
--   server       CONFIG INFO PUBLISH PUBSUB TIME WAIT WAITAOF
-- and of the scripts' library `redis.call`, `redis.pcall`, `redis.sha1hex`, `cjson.decode` and `cjson.encode`.
--
-- Time is the store's clock, read once before each script. Unlike on a server,
--   - a key ends at its millisecond, not one later, so that a clock moved by a whole time to live ends it;
--   - a scan returns everything at once, with the cursor 0, and the keys in order;
--   - nobody subscribes: PUBLISH hands the message to the store, and PUBSUB knows no channel;
--   - flags of scripts (`#!lua flags=...`) are ignored: memory is never full, and there is no replica;
--   - there are no databases, accounts, transactions, memory limits or clusters, and nothing is persistent.
local host = ...  -- sha1 and digest: Python's, written in C
local error, ipairs, pairs, pcall, select = error, ipairs, pairs, pcall, select
local tonumber, tostring, type, unpack, collectgarbage = tonumber, tostring, type, unpack, collectgarbage
local sub, find_in, match, format, upper = string.sub, string.find, string.match, string.format, string.upper
local byte, char, gsub = string.byte, string.char, string.gsub
local floor, min, max, insert, remove = math.floor, math.min, math.max, table.insert, table.remove
local WRONG = { err = 'WRONGTYPE Operation against a key holding the wrong kind of value' }
local OK = { ok = 'OK' }
-- Of the call that runs: its keyspace, its time, and its messages (channel and text, one after the other).
local keyspace, now_us, now_ms, messages
local calls = {}  -- by name: a function of the arguments as a script gives them

local function fail(text) error({ err = text }) end

-- A number as a server's Lua passes it to a command, and as it shows a score.
local function shown(number)
  if number % 1 == 0 and number < 1e17 and number > -1e17 then return format('%.0f', number) end
  if number == math.huge then return 'inf' elseif number == -math.huge then return '-inf' end
  return format('%.17g', number)
end

-- Commands take strings and numbers; anything else, and a wrong count of them, is refused before the command runs.
local function text_of(value)
  if type(value) == 'string' then return value elseif type(value) == 'number' then return shown(value) end
  fail('ERR Command arguments must be strings or integers')
end
local function texts(name, arity, ...)
  if select('#', ...) ~= arity then fail("ERR wrong number of arguments for '" .. name .. "' command") end
  local words = { ... }
  for index = 1, arity do words[index] = text_of(words[index]) end
  return unpack(words, 1, arity)
end
local MAKE = {}  -- by count of arguments: functions that look once at each of them, for most are strings
MAKE[0] = function(name, act)
  return function(...)
    texts(name, 0, ...)
    return act()
  end
end
MAKE[1] = function(name, act)
  return function(a, ...)
    if type(a) == 'string' and select('#', ...) == 0 then return act(a) end
    return act(texts(name, 1, a, ...))
  end
end
MAKE[2] = function(name, act)
  return function(a, b, ...)
    if type(a) == 'string' and type(b) == 'string' and select('#', ...) == 0 then return act(a, b) end
    return act(texts(name, 2, a, b, ...))
  end
end
local function make(name, arity, act)
  return function(...) return act(texts(name, arity, ...)) end
end
local function make_of_many(act)
  return function(...)
    local words = { ... }
    for index = 1, select('#', ...) do
      if type(words[index]) ~= 'string' then words[index] = text_of(words[index]) end
    end
    return act(words)
  end
end
-- Define commands with a fixed count of arguments, or with nil for it a function that gets them all in one table.
local function define(names, arity, act)
  for name in string.gmatch(names, '%u+') do
    local is_frequent = arity and MAKE[arity]
    calls[name] = is_frequent and is_frequent(name, act) or arity and make(name, arity, act) or make_of_many(act)
  end
end

local function number_of(text)
  local number = tonumber(text)
  if number then return number end
  text = string.lower(text)
  if text == '+inf' or text == 'inf' then return math.huge elseif text == '-inf' then return -math.huge end
  fail('ERR value is not a valid float')
end

local function whole(text)
  return find_in(text, '^%-?%d+$') and tonumber(text) or fail('ERR value is not an integer or out of range')
end

local function entry_of(key, kind)
  local entry = keyspace[key]
  if entry then
    local ends_ms = entry.ends_ms
    if ends_ms and ends_ms <= now_ms then
      keyspace[key] = nil
      return nil
    end
    if kind and entry.kind ~= kind then error(WRONG) end
  end
  return entry
end

local function added(key, entry)
  keyspace[key] = entry
  return entry
end

local function words_from(words, first)
  local rest = {}
  for index = first, #words do rest[#rest + 1] = words[index] end
  return rest
end

-- Takes one away for each of the words from the second on for which `take` says so, and the key with the last one.
local function take_each(words, kind, take)
  local entry, count = entry_of(words[1], kind), 0
  if not entry then return 0 end
  for index = 2, #words do
    if take(entry, words[index]) then count = count + 1 end
  end
  entry.count = entry.count - count
  if entry.count == 0 then keyspace[words[1]] = nil end
  return count
end

-- keys

define('EXISTS', nil, function(keys)
  local count = 0
  for _, key in ipairs(keys) do if entry_of(key) then count = count + 1 end end
  return count
end)
define('DEL UNLINK', nil, function(keys)
  local count = 0
  for _, key in ipairs(keys) do
    if entry_of(key) then
      count = count + 1
      keyspace[key] = nil
    end
  end
  return count
end)
define('TYPE', 1, function(key)
  local entry = entry_of(key)
  return { ok = entry and entry.kind or 'none' }
end)
local function ends_at(key, at_ms)
  local entry = entry_of(key)
  if not entry then return 0 end
  if at_ms <= now_ms then keyspace[key] = nil else entry.ends_ms = at_ms end
  return 1
end
define('PEXPIREAT', 2, function(key, at_ms) return ends_at(key, whole(at_ms)) end)
define('PEXPIRE', 2, function(key, ms) return ends_at(key, now_ms + whole(ms)) end)
define('EXPIRE', 2, function(key, seconds) return ends_at(key, now_ms + 1000 * whole(seconds)) end)
define('PERSIST', 1, function(key)
  local entry = entry_of(key)
  if not (entry and entry.ends_ms) then return 0 end
  entry.ends_ms = nil
  return 1
end)
define('PTTL', 1, function(key)
  local entry = entry_of(key)
  return not entry and -2 or not entry.ends_ms and -1 or entry.ends_ms - now_ms
end)
define('RENAME', 2, function(from, to)
  local entry = entry_of(from) or fail('ERR no such key')
  keyspace[from] = nil
  keyspace[to] = entry
  return OK
end)
local function copied(value)
  if type(value) ~= 'table' then return value end
  local copy = {}
  for key, one in pairs(value) do copy[key] = copied(one) end
  return copy
end
define('COPY', 2, function(from, to)
  local entry = entry_of(from)
  if not entry or entry_of(to) then return 0 end
  keyspace[to] = copied(entry)
  return 1
end)
define('FLUSHDB', 0, function()
  for key in pairs(keyspace) do keyspace[key] = nil end
  return OK
end)
-- A server's pattern as one of Lua: `*`, `?`, a set in brackets, and a backslash before a plain character.
local function lua_pattern(glob)
  local found, index = { '^' }, 1
  while index <= #glob do
    local one = sub(glob, index, index)
    local set = one == '[' and match(glob, '^%[[^%]]+%]', index)
    if one == '*' then
      found[#found + 1] = '.*'
    elseif one == '?' then
      found[#found + 1] = '.'
    elseif set then
      found[#found + 1] = set
      index = index + #set - 1
    else
      if one == '\\' and index < #glob then
        index = index + 1
        one = sub(glob, index, index)
      end
      found[#found + 1] = find_in(one, '^%w$') and one or '%' .. one
    end
    index = index + 1
  end
  return table.concat(found) .. '$'
end
local function keys_like(glob)
  local pattern, found = lua_pattern(glob), {}
  local names = {}
  for key in pairs(keyspace) do names[#names + 1] = key end
  for _, key in ipairs(names) do
    if entry_of(key) and find_in(key, pattern) then found[#found + 1] = key end
  end
  table.sort(found)
  return found
end
define('KEYS', 1, keys_like)
define('SCAN', nil, function(words)
  local glob = '*'
  for index = 2, #words, 2 do if words[index] == 'MATCH' then glob = words[index + 1] end end
  return { '0', keys_like(glob) }
end)

-- strings

define('GET', 1, function(key)
  local entry = entry_of(key, 'string')
  return entry and entry.value or false
end)
define('MGET', nil, function(keys)
  local values = {}
  for index, key in ipairs(keys) do
    local entry = entry_of(key)
    values[index] = entry and entry.kind == 'string' and entry.value or false
  end
  return values
end)
local function set(key, value, options)
  local entry = entry_of(key)
  if options.GET and entry and entry.kind ~= 'string' then error(WRONG) end
  local before = options.GET and entry and entry.value or false
  if options.NX and entry or options.XX and not entry then return before end
  keyspace[key] = { kind = 'string', value = value, ends_ms = options.ends_ms or options.KEEPTTL and entry and entry.ends_ms }
  if options.GET then return before end
  return OK
end
define('SET', nil, function(words)
  local options, index = {}, 3
  while index <= #words do
    local word = upper(words[index])
    if word == 'PX' or word == 'EX' then
      options.ends_ms = now_ms + whole(words[index + 1]) * (word == 'EX' and 1000 or 1)
      index = index + 1
    elseif word == 'NX' or word == 'XX' or word == 'GET' or word == 'KEEPTTL' then
      options[word] = true
    else
      fail('ERR syntax error')
    end
    index = index + 1
  end
  return set(words[1], words[2], options)
end)
define('SETNX', 2, function(key, value) return set(key, value, { NX = true }) and 1 or 0 end)
define('GETSET', 2, function(key, value) return set(key, value, { GET = true }) end)

local function increase(key, by)
  local entry = entry_of(key, 'string')
  local value = whole(entry and entry.value or '0') + whole(by)
  set(key, shown(value), { KEEPTTL = true })
  return value
end
define('INCRBY', 2, increase)
define('INCR', 1, function(key) return increase(key, '1') end)

-- hashes and sets: values by field or member, and how many

local function hash_set(key, field, value)
  local entry = entry_of(key, 'hash') or added(key, { kind = 'hash', values = {}, count = 0 })
  local values = entry.values
  if values[field] == nil then entry.count = entry.count + 1 end
  values[field] = value
end
define('HSET', nil, function(words)
  local key, count = words[1], #words
  if count < 3 or count % 2 == 0 then fail("ERR wrong number of arguments for 'hset' command") end
  local entry = entry_of(key, 'hash') or added(key, { kind = 'hash', values = {}, count = 0 })
  local values, new = entry.values, 0
  for index = 2, count, 2 do
    local field = words[index]
    if values[field] == nil then new = new + 1 end
    values[field] = words[index + 1]
  end
  entry.count = entry.count + new
  return new
end)
local function hash_get(key, field)
  local entry = entry_of(key, 'hash')
  return entry and entry.values[field] or false
end
define('HSETNX', 3, function(key, field, value)
  if hash_get(key, field) then return 0 end
  hash_set(key, field, value)
  return 1
end)
define('HGET', 2, hash_get)
define('HMGET', nil, function(words)
  local entry, found = entry_of(words[1], 'hash'), {}
  local values = entry and entry.values or found
  for index = 2, #words do found[index - 1] = values[words[index]] or false end
  return found
end)
local function hash_all(key)
  local entry, found, count = entry_of(key, 'hash'), {}, 0
  for field, value in pairs(entry and entry.values or {}) do
    found[count + 1], found[count + 2] = field, value
    count = count + 2
  end
  return found
end
define('HGETALL', 1, hash_all)
define('HSCAN', nil, function(words) return { '0', hash_all(words[1]) } end)
local function members(key, kind)
  local entry, found = entry_of(key, kind), {}
  for member in pairs(entry and entry.values or {}) do found[#found + 1] = member end
  return found
end
local function size_of(kind)
  return function(key)
    local entry = entry_of(key, kind)
    return entry and entry.count or 0
  end
end
local function take_value(entry, field)
  local is_there = entry.values[field] ~= nil
  entry.values[field] = nil
  return is_there
end
define('HKEYS', 1, function(key) return members(key, 'hash') end)
define('HDEL', nil, function(words) return take_each(words, 'hash', take_value) end)
define('HLEN', 1, size_of('hash'))
define('HEXISTS', 2, function(key, field) return hash_get(key, field) and 1 or 0 end)
define('HINCRBY', 3, function(key, field, by)
  local before = hash_get(key, field) or '0'
  if not find_in(before, '^%-?%d+$') then fail('ERR hash value is not an integer') end
  local value = tonumber(before) + whole(by)
  hash_set(key, field, shown(value))
  return value
end)
define('SADD', nil, function(words)
  local key, new = words[1], 0
  local entry = entry_of(key, 'set') or added(key, { kind = 'set', values = {}, count = 0 })
  for index = 2, #words do
    if not entry.values[words[index]] then new = new + 1 end
    entry.values[words[index]] = true
  end
  entry.count = entry.count + new
  return new
end)
define('SREM', nil, function(words) return take_each(words, 'set', take_value) end)
define('SISMEMBER', 2, function(key, member)
  local entry = entry_of(key, 'set')
  return entry and entry.values[member] and 1 or 0
end)
define('SCARD', 1, size_of('set'))
define('SMEMBERS', 1, function(key) return members(key, 'set') end)

-- sorted sets: scores by member, and all members in order

-- The first place of the order that is not before a member with this score.
local function rank(entry, score, member)
  local order, scores, low, high = entry.order, entry.values, 1, #entry.order + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local other = order[middle]
    local its = scores[other]
    if its > score or its == score and other >= member then high = middle else low = middle + 1 end
  end
  return low
end
-- The first place whose score is above the bound, or at it unless `is_above`.
local function place_of(entry, bound, is_above)
  local order, scores, low, high = entry.order, entry.values, 1, #entry.order + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local score = scores[order[middle]]
    if score > bound or not is_above and score == bound then high = middle else low = middle + 1 end
  end
  return low
end
local function take_member(entry, member)
  local score = entry.values[member]
  if score == nil then return false end
  remove(entry.order, rank(entry, score, member))
  entry.values[member] = nil
  return true
end
local function put_member(entry, member, score)
  insert(entry.order, rank(entry, score, member), member)
  entry.values[member] = score
end
local CONDITIONS = { NX = true, XX = true, GT = true, LT = true }
define('ZADD', nil, function(words)
  local key, first, wants = words[1], 2, {}
  while CONDITIONS[words[first]] do
    wants[words[first]] = true
    first = first + 1
  end
  local scores = {}
  for at = first, #words, 2 do scores[at] = number_of(words[at]) end
  local entry, new = entry_of(key, 'zset'), 0
  if not entry then
    if wants.XX then return 0 end
    entry = added(key, { kind = 'zset', values = {}, order = {}, count = 0 })
  end
  for at = first, #words, 2 do
    local score, member = scores[at], words[at + 1]
    local before = entry.values[member]
    if before == nil then
      if not wants.XX then
        put_member(entry, member, score)
        new = new + 1
      end
    elseif score ~= before and not (wants.NX or wants.GT and score < before or wants.LT and score > before) then
      take_member(entry, member)
      put_member(entry, member, score)
    end
  end
  entry.count = entry.count + new
  return new
end)
local function remove_members(words) return take_each(words, 'zset', take_member) end
define('ZREM', nil, remove_members)
local function score_of(key, member)
  local entry = entry_of(key, 'zset')
  local score = entry and entry.values[member]
  return score and shown(score) or false
end
define('ZSCORE', 2, score_of)
define('ZMSCORE', nil, function(words)
  local found = {}
  for index = 2, #words do found[index - 1] = score_of(words[1], words[index]) end
  return found
end)
define('ZCARD', 1, size_of('zset'))
define('ZRANK', 2, function(key, member)
  local entry = entry_of(key, 'zset')
  local score = entry and entry.values[member]
  return score and rank(entry, score, member) - 1 or false
end)
local function between(entry, least, most)
  local is_above, is_below = sub(least, 1, 1) == '(', sub(most, 1, 1) == '('
  local first = place_of(entry, number_of(is_above and sub(least, 2) or least), is_above)
  return first, place_of(entry, number_of(is_below and sub(most, 2) or most), not is_below) - 1
end
define('ZCOUNT', 3, function(key, least, most)
  local entry = entry_of(key, 'zset')
  if not entry then return 0 end
  local first, last = between(entry, least, most)
  return max(0, last - first + 1)
end)
local function range(words, is_by_score)
  local entry, index, skip, limit, has_scores = entry_of(words[1], 'zset'), 4, 0, -1, false
  while index <= #words do
    local word = upper(words[index])
    if word == 'LIMIT' then
      skip, limit = whole(words[index + 1]), whole(words[index + 2])
      index = index + 2
    elseif word == 'BYSCORE' then
      is_by_score = true
    elseif word == 'WITHSCORES' then
      has_scores = true
    else
      fail('ERR syntax error')
    end
    index = index + 1
  end
  local found = {}
  if not entry then return found end
  local first, last
  if is_by_score then
    first, last = between(entry, words[2], words[3])
    first = first + skip
    if limit >= 0 then last = min(last, first + limit - 1) end
  else
    first, last = whole(words[2]), whole(words[3])
    first = max(0, first < 0 and entry.count + first or first) + 1
    last = min(entry.count - 1, last < 0 and entry.count + last or last) + 1
  end
  local order, scores = entry.order, entry.values
  for at = first, last do
    found[#found + 1] = order[at]
    if has_scores then found[#found + 1] = shown(scores[order[at]]) end
  end
  return found
end
define('ZRANGE', nil, range)
define('ZRANGEBYSCORE', nil, function(words) return range(words, true) end)
define('ZREMRANGEBYSCORE', 3, function(key, least, most)
  local found = range({ key, least, most }, true)
  insert(found, 1, key)
  return remove_members(found)
end)
define('ZSCAN', nil, function(words) return { '0', range({ words[1], '0', '-1', 'WITHSCORES' }) } end)

-- streams: entries in the order of their ids, each with `ms`, `sequence` and `fields`; and the last id given

local function id_of(text, sequence)
  if text == '-' then return 0, 0 elseif text == '+' then return math.huge, math.huge end
  local ms, rest = match(text, '^(%d+)%-(%d+)$')
  if ms then return tonumber(ms), tonumber(rest) end
  if find_in(text, '^%d+$') then return tonumber(text), sequence end
  fail('ERR Invalid stream ID specified as stream command argument')
end
-- The first place of an entry that is not before this id, or behind it if `is_after`.
local function place_in(entries, ms, sequence, is_after)
  local low, high = 1, #entries + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local one = entries[middle]
    local is_reached = one.ms > ms
      or one.ms == ms and (one.sequence > sequence or not is_after and one.sequence == sequence)
    if is_reached then high = middle else low = middle + 1 end
  end
  return low
end
local function id_shown(one) return shown(one.ms) .. '-' .. shown(one.sequence) end
local function entry_shown(one) return { id_shown(one), one.fields } end
define('XADD', nil, function(words)
  local entry = entry_of(words[1], 'stream')
  local last = entry and entry.last or { ms = 0, sequence = 0 }
  local ms, sequence = id_of(words[2], 0)
  if ms < last.ms or ms == last.ms and sequence <= last.sequence then
    fail('ERR The ID specified in XADD is equal or smaller than the target stream top item')
  end
  entry = entry or added(words[1], { kind = 'stream', entries = {} })
  entry.last = { ms = ms, sequence = sequence, fields = words_from(words, 3) }
  insert(entry.entries, entry.last)
  return words[2]
end)
local function within(entries, least, most)
  local is_after, is_before = sub(least, 1, 1) == '(', sub(most, 1, 1) == '('
  local ms, sequence = id_of(is_after and sub(least, 2) or least, 0)
  local first = place_in(entries, ms, sequence, is_after)
  ms, sequence = id_of(is_before and sub(most, 2) or most, math.huge)
  return first, place_in(entries, ms, sequence, not is_before) - 1
end
define('XRANGE', nil, function(words)
  local entry, found = entry_of(words[1], 'stream'), {}
  if not entry then return found end
  local first, last = within(entry.entries, words[2], words[3])
  if words[5] then last = min(last, first + whole(words[5]) - 1) end
  for at = first, last do found[#found + 1] = entry_shown(entry.entries[at]) end
  return found
end)
define('XREVRANGE', nil, function(words)
  local entry, found = entry_of(words[1], 'stream'), {}
  if not entry then return found end
  local first, last = within(entry.entries, words[3], words[2])
  if words[5] then first = max(first, last - whole(words[5]) + 1) end
  for at = last, first, -1 do found[#found + 1] = entry_shown(entry.entries[at]) end
  return found
end)
define('XLEN', 1, function(key)
  local entry = entry_of(key, 'stream')
  return entry and #entry.entries or 0
end)
define('XDEL', nil, function(words)
  local entry, count = entry_of(words[1], 'stream'), 0
  for index = 2, entry and #words or 0 do
    local ms, sequence = id_of(words[index], 0)
    local at = place_in(entry.entries, ms, sequence)
    local one = entry.entries[at]
    if one and one.ms == ms and one.sequence == sequence then
      remove(entry.entries, at)
      count = count + 1
    end
  end
  return count
end)
define('XTRIM', 4, function(key, how, _, bound)
  local entry = entry_of(key, 'stream')
  if not entry then return 0 end
  local entries, count = entry.entries, 0
  if upper(how) == 'MAXLEN' then
    count = max(0, #entries - whole(bound))
  else
    count = place_in(entries, id_of(bound, 0)) - 1
  end
  entry.entries = words_from(entries, count + 1)
  return count
end)
define('XINFO', 2, function(_, key)
  local entry = entry_of(key, 'stream') or fail('ERR no such key')
  local entries = entry.entries
  return {
    'length', #entries, 'last-generated-id', id_shown(entry.last),
    'first-entry', entries[1] and entry_shown(entries[1]) or false,
    'last-entry', entries[1] and entry_shown(entries[#entries]) or false,
  }
end)

-- the server

define('TIME', 0, function() return { shown(floor(now_us / 1000000)), shown(now_us % 1000000) } end)
define('PUBLISH', 2, function(channel, text)
  insert(messages, channel)
  insert(messages, text)
  return 0
end)
define('PUBSUB', nil, function() return {} end)
local run_ids, server_count = setmetatable({}, { __mode = 'k' }), 0  -- by keyspace
local function new_keyspace()
  local space = {}
  server_count = server_count + 1
  run_ids[space] = format('%016x', server_count) .. string.rep('0', 24)
  return space
end
define('INFO', nil, function()
  local id = run_ids[keyspace]
  return 'run_id:' .. id .. '\r\nmaster_replid:' .. id .. '\r\nrole:master\r\nredis_mode:memory\r\ncluster_enabled:0\r\n'
end)
define('CONFIG', nil, function() return {} end)
define('WAIT', nil, function() return 0 end)
define('WAITAOF', nil, function() return { 0, 0 } end)

-- scripts

local function call(name, ...)
  local act = calls[name]
  if act then return act(...) end
  act = type(name) == 'string' and calls[upper(name)]
  if not act then fail('ERR Unknown Redis command called from script ' .. tostring(name)) end
  return act(...)
end
local function try(...)
  local is_done, answer = pcall(call, ...)
  if is_done then return answer end
  return type(answer) == 'table' and answer or { err = 'ERR ' .. tostring(answer) }
end

-- No Python code runs in the middle of a script: with it, a signal handler or a finalizer could run, and enter the store.
local function sha1hex(text)
  return (gsub(host.digest(host.sha1(text)), '.', function(one) return format('%02x', byte(one)) end))
end

local ESCAPES = { b = '\b', f = '\f', n = '\n', r = '\r', t = '\t' }
local function unescaped(sign, digits)
  if sign ~= 'u' or #digits < 4 then return (ESCAPES[sign] or sign) .. digits end
  local code = tonumber(digits, 16)
  if code < 0x80 then return char(code) end
  local last = char(0x80 + code % 64)
  if code < 0x800 then return char(0xC0 + floor(code / 64)) .. last end
  return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64) .. last
end
local WORDS = { ['true'] = true, ['false'] = false, null = {} }
-- Read JSON as scripts get it, numbers, texts and lists of them, from a place on. Returns the value and the place behind it.
local function json_value(text, at)
  at = find_in(text, '[^%s,]', at) or fail('ERR JSON ends too early')
  local sign = sub(text, at, at)
  if sign == '[' then
    local list = {}
    at = find_in(text, '[^%s,]', at + 1)
    while sub(text, at or fail('ERR JSON ends too early'), at) ~= ']' do
      list[#list + 1], at = json_value(text, at)
      at = find_in(text, '[^%s,]', at)
    end
    return list, at + 1
  elseif sign == '"' then
    local from, is_plain = at + 1, true
    repeat
      at = find_in(text, '["\\]', at + 1) or fail('ERR JSON ends too early')
      local is_escape = byte(text, at) == 92
      if is_escape then at, is_plain = at + 1, false end
    until not is_escape
    local found = sub(text, from, at - 1)
    return is_plain and found or gsub(found, '\\(.)(%x?%x?%x?%x?)', unescaped), at + 1
  end
  local word = match(text, '^[^%s,%]]+', at) or fail('ERR JSON with a wrong sign')
  local value = tonumber(word)
  if value == nil then value = WORDS[word] end
  if value == nil then fail('ERR JSON of an unknown kind') end
  return value, at + #word
end

local ESCAPED = { ['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r',
  ['\t'] = '\\t' }
local function escaped(character)
  return ESCAPED[character] or format('\\u%04x', byte(character))
end

-- A value as JSON. A table whose keys are numbers from 1 on is a list, and any other one, also an empty one, is an object.
local function json_of(value)
  local kind = type(value)
  if kind == 'nil' then return 'null' end
  if kind == 'boolean' then return tostring(value) end
  if kind == 'number' and value - value == 0 then return format('%.14g', value) end
  if kind == 'string' then return '"' .. gsub(value, '[%c"/\\]', escaped) .. '"' end
  if kind ~= 'table' then error('Cannot serialise ' .. kind) end
  local parts, count = {}, 0
  for _ in pairs(value) do count = count + 1 end
  if count > 0 and count == #value then
    for index, one in ipairs(value) do parts[index] = json_of(one) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for name, one in pairs(value) do
    if type(name) ~= 'string' and type(name) ~= 'number' then error('Cannot serialise table: key of another type') end
    parts[#parts + 1] = json_of(tostring(name)) .. ':' .. json_of(one)
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- What a script sees: like on a server, it may neither make nor read another global.
local VISIBLE = {
  redis = { call = call, pcall = try, sha1hex = sha1hex },
  cjson = { decode = function(text) return tonumber(text) or (json_value(text, 1)) end, encode = json_of },
}
for name in string.gmatch('assert error ipairs next pairs pcall select tonumber tostring type unpack', '%a+') do
  VISIBLE[name] = _G[name]
end
for name in string.gmatch('string math table', '%a+') do VISIBLE[name] = _G[name] end
setmetatable(VISIBLE, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable \'' .. name .. "'", 2) end,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})
rawset(VISIBLE, 'KEYS', {})
rawset(VISIBLE, 'ARGV', {})

-- Replies go to Python as one list of values: a shape, the messages, then the reply itself.
local SCALAR, LIST, NESTED, ERROR, LONG = 0, 1, 2, 3, 4
local VALUES_MAX = 4000  -- Lua returns at most 8,000 values

-- Appends a value to the list; of a table, true and the number of its items come first. Returns the new length.
local function append(flat, count, value)
  local kind = type(value)
  if kind == 'table' and (value.ok or value.err) then value, kind = value.ok or value.err, 'string' end
  if kind ~= 'table' then
    if kind == 'number' and value % 1 ~= 0 then value = value > 0 and floor(value) or math.ceil(value) end
    if kind == 'boolean' then value = value and 1 or nil end
    flat[count + 1] = value
    return count + 1, false
  end
  local header, items, is_nested, is_one = count + 1, 0, false, false
  flat[header] = true
  count = count + 2
  while value[items + 1] ~= nil do
    items = items + 1
    count = append(flat, count, value[items])
    is_nested = is_nested or type(value[items]) == 'table' and not value[items].ok
  end
  flat[header + 1] = items
  return count, is_nested
end
local function reply(is_done, answer)
  local said = messages[1] and messages or nil
  if not is_done then
    return ERROR, said, type(answer) == 'table' and tostring(answer.err) or 'ERR ' .. tostring(answer)
  end
  local kind = type(answer)
  if kind == 'string' then return SCALAR, said, answer end
  if kind == 'table' and answer.err then return ERROR, said, answer.err end
  local flat = {}
  local count, is_nested = append(flat, 0, answer)
  if count > VALUES_MAX then return LONG, said, flat, count end
  if kind ~= 'table' or answer.ok then return SCALAR, said, flat[1] end
  if is_nested then return NESTED, said, unpack(flat, 1, count) end
  return LIST, said, unpack(flat, 3, count)
end

-- Garbage is collected as a whole, after so much of it that scripts do not pay for marking what lives again and again.
local GARBAGE_KB = 32768
local limit_kb = GARBAGE_KB
collectgarbage('stop')
local function collect()
  collectgarbage('collect')
  collectgarbage('stop')  -- a collection starts it again
  local living_kb = collectgarbage('count')
  limit_kb = living_kb + max(GARBAGE_KB, living_kb)
end

local function begin(space, at_us)
  if collectgarbage('count') > limit_kb then collect() end
  keyspace, now_us, now_ms, messages = space, at_us, floor(at_us / 1000), {}
end
-- Run a script with its keys and arguments, which come one after the other.
local function run(space, at_us, chunk, key_count, ...)
  begin(space, at_us)
  local keys = { ... }
  local arguments = { select(key_count + 1, ...) }
  for index = #keys, key_count + 1, -1 do keys[index] = nil end
  rawset(VISIBLE, 'KEYS', keys)
  rawset(VISIBLE, 'ARGV', arguments)
  return reply(pcall(chunk))
end
local function command(space, at_us, ...)
  begin(space, at_us)
  return reply(pcall(call, ...))
end
local function prepared(chunk) return setfenv(chunk, VISIBLE) end
return new_keyspace, run, command, prepared
