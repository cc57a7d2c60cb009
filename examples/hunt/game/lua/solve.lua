#!lua
-- A right answer: it counts once, and as a whole. KEYS: player, board, seen,
-- outbox, solves. ARGV: id, number, points, now (ms), most in the outbox, the
-- reward's event up to its total, the next challenge's event.
-- The first line has Redis refuse all of it when its memory is full.
local solved = redis.call('HGET', KEYS[1], 'solved')
if not solved then
  return {'unknown', 0, '0'}
end
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1]) -- also who is sent away plays
solved = tonumber(solved)
local number = tonumber(ARGV[2])
if number <= solved then
  return {'repeated', solved + 1, redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0'}
end
if number > solved + 1 then
  return {'other', solved + 1, '0'}
end
if redis.call('XLEN', KEYS[4]) + 2 > tonumber(ARGV[5]) then
  return {'busy', number, '0'}
end
redis.call('HSET', KEYS[1], 'solved', number)
local total = redis.call('ZINCRBY', KEYS[2], ARGV[3], ARGV[1])
redis.call('INCR', KEYS[5])
redis.call('XADD', KEYS[4], '*', 'player', ARGV[1], 'type', 'drop', 'at', ARGV[4], 'payload', ARGV[6] .. total .. '}')
redis.call('XADD', KEYS[4], '*', 'player', ARGV[1], 'type', 'assignment', 'at', ARGV[4], 'payload', ARGV[7])
return {'right', number + 1, total}
