-- KEYS: record, notes or positions. ARGV: the bound, '1' if this was the last
-- step, the order that a note or a position has to the bound at most, targets.
-- Drops the notes of the targets that are not above the bound (0), or their
-- positions that are below it (-1); since has passed it already, so they prove
-- nothing any more. Returns how many.
if redis.call('HGET', KEYS[1], 'prune') ~= ARGV[1] then return 0 end
local n = 0
for first = 4, #ARGV, 1000 do
  local last, old = math.min(first + 999, #ARGV), {}
  for i, id in ipairs(redis.call('HMGET', KEYS[2], unpack(ARGV, first, last))) do
    if id and cmp(id, ARGV[1]) <= tonumber(ARGV[3]) then old[#old + 1] = ARGV[first + i - 1] end
  end
  if #old > 0 then n = n + redis.call('HDEL', KEYS[2], unpack(old)) end
end
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'prune', '') end
return n
