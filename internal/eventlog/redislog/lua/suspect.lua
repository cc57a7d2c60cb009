-- KEYS: stream, record, notes. ARGV: the highest ID known from the lost branch,
-- and 'removed' if somebody may have removed it instead, or ''.
-- A server loses its tail once, when it takes over: what the gateways report
-- of that, one after the other, widens one break.
local st = look(KEYS[1], KEYS[2], KEYS[3])

-- known: was this, or a later ID, reported before? What was stored before what is
-- known to be lost was stored before that was told.
local lost = redis.call('HGET', st.rec, 'lost') or '0-0'
local known = cmp(ARGV[1], lost) <= 0

-- late: may the entry have been stored after the loss was told? The server whose
-- place this one took may go on storing for a while; its clock may be a second off.
local SKEW = 1000
local function late(told)
  if known or string.match(server().second, '^0+$') then return false end
  local stored, boundary = string.match(ARGV[1], '^(%d+)'), string.match(told.boundary, '^(%d+)')
  return tonumber(stored) + SKEW >= tonumber(boundary)
end

-- fresh_head is an ID that no device can have: whoever stands at the head that
-- was left may have lost what came after it.
local function fresh_head(above)
  st.f.head = later(st.f.head, above)
  local boundary = start_over(st, {}).head
  local s = beckon(st)
  set(st, 'head', s.head)
  set(st, 'added', text(s.added))
  return boundary
end

local list, latest, covered = read_breaks(st), nil, false
for _, b in ipairs(list) do
  if b.epoch == epoch() and b.why ~= 'd' then latest = b end
  if b.why == 'w' and cmp(ARGV[1], b.boundary) < 0 then covered = true end
end
if ARGV[2] == 'removed' then
  -- Nobody knows which of the two: everybody is told, by the word that is true of both.
  if known then return state(st) end
  local gap
  for _, b in ipairs(list) do
    if b.why == 'd' then gap = b end
  end
  local boundary = fresh_head(st.f.head)
  if gap then
    gap.boundary, gap.reach = boundary, boundary
    write_breaks(st, list)
  else
    add_break(st, boundary, boundary, 'd')
  end
  redis.call('HSET', st.rec, 'lost', later(lost, ARGV[1]))
  flush(st)
  return state(st)
end
if known and covered then return state(st) end
local reach = cap(st.f.head, ARGV[1]) -- once: time goes on while a script runs
if latest then
  if (latest.why == 'u' and not CAUTIOUS) or late(latest) then -- a suspicion turns out to be true, or there is more
    latest.boundary = fresh_head(reach)
  end
  latest.reach = later(latest.reach, later(latest.boundary, reach))
  latest.why = 'w'
  write_breaks(st, list)
else
  add_break(st, fresh_head(reach), reach, 'w')
end
redis.call('HSET', st.rec, 'lost', later(lost, ARGV[1]))
flush(st)
return state(st)
