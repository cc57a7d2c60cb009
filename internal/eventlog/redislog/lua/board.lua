-- KEYS: the board. ARGV: a name, its word, for how many milliseconds it is
-- noted, the most that anybody's is, and the most names.
-- Notes the word, takes away what has had its time, and returns what stands
-- there as name, word, name, word, ... The board is a hash, name -> "<until, in
-- milliseconds of this server's clock> <word>". What is noted for longer than
-- anybody may is the work of another clock or of somebody else, and goes too.
local key, most = KEYS[1], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HLEN', key) > tonumber(ARGV[5]) then redis.call('UNLINK', key) end
redis.call('HSET', key, ARGV[1], string.format('%.0f ', now + ARGV[3]) .. ARGV[2])
local all, out = redis.call('HGETALL', key), {}
for i = 1, #all, 2 do
  local till, word = string.match(all[i + 1], '^(%d+) (.*)$')
  till = tonumber(till)
  if till and now < till and till <= now + most then
    out[#out + 1] = all[i]
    out[#out + 1] = word
  else
    redis.call('HDEL', key, all[i])
  end
end
return out
