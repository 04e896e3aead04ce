#!lua flags=no-writes,allow-stale
-- Return which hash slots each master of this server's cluster serves.
-- KEYS     none: any server of a cluster answers
-- ARGV     none
-- answers  {{first, last, first, last, ...}, ...}; empty for a server outside a cluster
if string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:0', 1, true) then
  return {}
end
local masters, ranges_of = {}, {}
for _, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
  local master = range[3][1] .. ':' .. range[3][2]
  if not ranges_of[master] then
    ranges_of[master] = {}
    masters[#masters + 1] = ranges_of[master]
  end
  table.insert(ranges_of[master], range[1])
  table.insert(ranges_of[master], range[2])
end
return masters
