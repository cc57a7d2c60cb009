-- KEYS: stream, record, notes. ARGV: the highest ID known from the lost branch.
-- A server loses its tail once, when it takes over: what the gateways report
-- of that, one after the other, widens one break.
local st = look(KEYS[1], KEYS[2], KEYS[3])

-- fresh_head is an ID that no device can have: whoever stands at the head that
-- was left may have lost what came after it.
local function fresh_head(above)
  st.f.head = later(st.f.head, above)
  local s = start_over(st, {})
  set(st, 'head', s.head)
  set(st, 'added', text(s.added))
  return s.head
end
local list, latest = read_breaks(st), nil
for _, b in ipairs(list) do
  if b.epoch == epoch() and b.why ~= 'd' then latest = b end
end
if latest then
  if latest.why == 'u' and not CAUTIOUS then -- a suspicion turns out to be true
    latest.boundary = fresh_head(st.f.head)
  end
  latest.reach = later(latest.reach, cap(latest.boundary, ARGV[1]))
  latest.why = 'w'
  write_breaks(st, list)
else
  add_break(st, fresh_head(cap(st.f.head, ARGV[1])), ARGV[1], 'w')
end
flush(st)
return state(st)
