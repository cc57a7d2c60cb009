-- KEYS: stream, record, notes. ARGV: founded and swept as the caller saw them,
-- the last ID to remove, the ID after it ('' if there is none), how many
-- entries that should be, and then a target and an ID for each note.
-- Returns the number removed, 0 if another sweep was faster, and how many
-- entries the look found to be removed by someone else.
local st = look(KEYS[1], KEYS[2], KEYS[3])
if st.f.founded ~= ARGV[1] or st.f.swept ~= ARGV[2] then return {0, st.foreign} end
for first = 6, #ARGV, 1000 do
  redis.call('HSET', st.gone, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
local n
if ARGV[4] == '' then
  n = redis.call('XTRIM', st.key, 'MAXLEN', '=', '0')
else
  n = redis.call('XTRIM', st.key, 'MINID', '=', ARGV[4])
end
set(st, 'swept', ARGV[3])
set(st, 'removed', text(tonumber(st.f.removed) + n))
-- Another number means that someone else removed entries whose notes nobody
-- took, or that the caller's notes were not of this range.
if n ~= tonumber(ARGV[5]) then set(st, 'since', st.f.head) end
flush(st)
return {n, st.foreign}
