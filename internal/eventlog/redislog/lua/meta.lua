-- KEYS: the guard. ARGV: version, shards, groups of whoever asks.
-- Writes the guard if there is none, and returns what it says.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', ARGV[1], 'shards', ARGV[2], 'groups', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'version', 'shards', 'groups')
