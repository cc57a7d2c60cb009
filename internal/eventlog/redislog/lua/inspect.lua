-- KEYS: stream, record and notes of each shard. ARGV: for each a position, and
-- an ID beyond it that was acknowledged, or ''. Returns for each the state,
-- whether the stream holds the one and the other, and how many entries it ever got.
local out = {}
for i = 1, #ARGV / 2 do
  local st = look(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i])
  local acked = ARGV[2 * i]
  out[i] = {state(st), held(st, ARGV[2 * i - 1]), acked ~= '' and held(st, acked) or 0, st.f.added}
end
return out
