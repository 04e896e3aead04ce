#!lua flags=no-writes,allow-stale
-- Return the identity of this server, from its INFO.
-- KEYS     none: any server of a cluster answers
-- ARGV     none
-- answers  {INFO server, INFO replication, CLUSTER NODES; "" without a cluster}
local cluster = redis.call('INFO', 'cluster')
local nodes = string.find(cluster, 'cluster_enabled:1', 1, true) and redis.call('CLUSTER', 'NODES') or ''
return { redis.call('INFO', 'server'), redis.call('INFO', 'replication'), nodes }
