-- KEYS: the guard. ARGV: the fields and values of whoever asks; version is the
-- first. A field without a value isn't written.
-- Writes the guard if there is none, and returns what it says of these fields.
local names, all = {}, {}
for i = 1, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
  if ARGV[i + 1] ~= '' then
    all[#all + 1] = ARGV[i]
    all[#all + 1] = ARGV[i + 1]
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(all)) end
return redis.call('HMGET', KEYS[1], unpack(names))
