#!lua flags=no-writes
-- uses shared/operator.lua
-- uses */kind.lua
-- Return the state of a lock of any kind. Holder ids are cut off, because a complete one proves ownership.
-- ARGV     1 holders_max   2 characters to return of each holder id   3 place: "key" that may be anybody's, "segment" of a pool, or ""
-- answers  {"wrong_kind", type} if the key is not a lock   {"free"}
--          {"held", kind, token or "", ms until the name is free; -1 for never, "1" during a lock-delay, else "0",
--           permits or "", waiters or "", listeners or "", number of holders, ms since the only one acquired it or "",
--           then six strings per holder: start of its id, mode, ms until its end; -1 for never, owner or "", how often
--           it has entered, "host:pid" or ""}
local holders_max, shown = tonumber(ARGV[1]), tonumber(ARGV[2])
local kind, key_type = kind_at(ARGV[3])
if kind == nil then
  return { 'free' }
elseif not kind then
  return { 'wrong_kind', key_type or '' }
end

-- 1. by kind: the holders and the known waiters
local view = { holders_max = holders_max, shown = shown, free_in_ms = redis.call('PTTL', LOCK), is_delayed = false,
  permits = '', waiters = '', holder_count = 1, holders = {} }
if kind.show then
  kind.show(view)
else
  add(view, redis.call('GET', LOCK), 'exclusive', view.free_in_ms)
end

-- 2. each node of a cluster counts only its own subscriptions
local listeners = ''
local cluster = redis.pcall('INFO', 'cluster')
local is_alone = type(cluster) == 'string' and string.find(cluster, 'cluster_enabled:0', 1, true)
if is_alone and kind.has_listeners then
  local channels = { FREED }
  for _, each in ipairs(KINDS) do
    channels[#channels + 1] = each.opened
  end
  local found = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  if not found.err then
    local count = 0
    for index = 2, #found, 2 do
      count = count + found[index]
    end
    listeners = digits(count)
  end
end

-- 3. a token is the server's time in us at which it was issued
local token, held_ms = last_token(kind), ''
if view.holder_count == 1 and (view.holders[2] == 'exclusive' or view.holders[2] == 'write') then
  local ms = now_ms - (tonumber(token) or now_ms * 1000 + 1000) / 1000
  held_ms = ms >= 0 and digits(ms) or ''
end

local flag = view.is_delayed and '1' or '0'
local reply = { 'held', kind.name, token, digits(view.free_in_ms), flag, view.permits, view.waiters, listeners,
  digits(view.holder_count), held_ms }
for _, value in ipairs(view.holders) do
  reply[#reply + 1] = value
end
return reply
