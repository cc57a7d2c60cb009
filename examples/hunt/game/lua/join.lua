#!lua
-- A player that is new. KEYS: player, seen, players. ARGV: id, name, now (ms).
-- The first line has Redis refuse all of it when its memory is full.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'name', ARGV[2], 'solved', 0)
  redis.call('INCR', KEYS[3])
end
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 1
