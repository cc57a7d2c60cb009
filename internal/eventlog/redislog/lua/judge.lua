-- KEYS: stream, record, notes. ARGV: number of cursors, the cursors, targets.
-- Returns the state, for each cursor whether the stream holds that entry, and
-- for each target the highest ID removed, or nil.
local st = look(KEYS[1], KEYS[2], KEYS[3])
local n = tonumber(ARGV[1])
local holds, notes = {}, {}
for i = 1, n do holds[i] = held(st, ARGV[1 + i]) end
for first = n + 2, #ARGV, 1000 do
  local last = math.min(first + 999, #ARGV)
  for _, id in ipairs(redis.call('HMGET', st.gone, unpack(ARGV, first, last))) do notes[#notes + 1] = id end
end
return {state(st), holds, notes}
