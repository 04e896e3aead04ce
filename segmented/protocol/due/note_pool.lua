#!lua flags=allow-oom
-- uses shared/clock.lua
-- Enter a pool in the index of what is due, or move it forward. Its time never goes back here: only the worker that
-- looked moves it on (move_pool.lua).
-- KEYS     1 sweep   2 expire   3 finish_transfers   4 relay   5 forget   6 audit (zsets: pool -> server ms)
--          7 outboxes (set: pools that orders were submitted to)
--          8 holds (hash: pool -> shortest_ms until_ms; see move_pool.lua)
-- ARGV     1 name of the pool or shard   2 its sku   3 sweep_ms   4 expire_ms (from now; "": it only has to be known)
--          5 soon_ms (of the duties that follow each change)   6 audit_ms (of the audit)
--          7 submits ("1": orders are submitted to it)
-- answers  1

redis.call('SCARD', KEYS[7]) -- a key of another type fails here, before the first write
local noted = redis.call('HGET', KEYS[8], ARGV[2])
local scores = {}

local function enter(key, name, after_ms)
  local at = redis.call('ZSCORE', key, name)
  if after_ms and after_ms ~= '' then
    local wanted = now_ms + tonumber(after_ms)
    if at then
      wanted = math.min(math.floor(tonumber(at)), wanted) -- without the mark of a pool that was found quiet
    end
    scores[#scores + 1] = { key, digits(wanted), name }
  elseif not at then
    scores[#scores + 1] = { key, string.format('%.1f', now_ms + 0.5), name } -- one look, as at a quiet pool
  end
end

enter(KEYS[1], ARGV[1], ARGV[3])
enter(KEYS[2], ARGV[2], ARGV[4])
enter(KEYS[3], ARGV[2], ARGV[5])
enter(KEYS[4], ARGV[2], ARGV[5])
enter(KEYS[5], ARGV[2])
enter(KEYS[6], ARGV[2], redis.call('ZSCORE', KEYS[6], ARGV[2]) and ARGV[6]) -- a new pool is audited at the next look
if ARGV[4] ~= '' then
  local shortest, until_ms = string.match(noted or '', '^(%d+) (%d+)$')
  local hold_ms = tonumber(ARGV[4])
  local covered_ms = now_ms + hold_ms
  if shortest and tonumber(until_ms) > now_ms then
    hold_ms, covered_ms = math.min(hold_ms, tonumber(shortest)), math.max(covered_ms, tonumber(until_ms))
  end
  redis.call('HSET', KEYS[8], ARGV[2], string.format('%.0f %.0f', hold_ms, covered_ms))
end
if ARGV[7] == '1' then
  redis.call('SADD', KEYS[7], ARGV[1])
end
for _, score in ipairs(scores) do
  redis.call('ZADD', score[1], score[2], score[3])
end
return 1
