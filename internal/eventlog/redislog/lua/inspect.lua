-- KEYS: stream, record and notes of each shard. ARGV: a position for each.
-- Returns for each the state and whether the stream holds the position's entry.
local out = {}
for i = 1, #ARGV do
  local st = look(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i])
  out[i] = {state(st), held(st, ARGV[i])}
end
return out
