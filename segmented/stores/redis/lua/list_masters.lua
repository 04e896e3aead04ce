#!lua flags=no-writes,allow-stale
-- Name one hash slot of each master of this server's cluster.
-- KEYS     none: any server of a cluster answers
-- ARGV     none
-- answers  {slot, ...}; empty for a server that is in no cluster
if string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:0', 1, true) then
  return {}
end
local slots, known = {}, {}
for _, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
  local master = range[3][1] .. ':' .. range[3][2]
  if not known[master] then
    known[master] = true
    slots[#slots + 1] = range[1]
  end
end
return slots
