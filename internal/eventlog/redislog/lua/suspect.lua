-- KEYS: stream, record, notes. ARGV: the highest ID known from the lost branch.
-- A server loses its tail once, when it takes over: what the gateways report
-- of that, one after the other, widens one break.
local st = look(KEYS[1], KEYS[2], KEYS[3])
local list, latest = read_breaks(st), nil
for _, b in ipairs(list) do
  if b.epoch == epoch() then latest = b end
end
if latest then
  if latest.why == 'u' and not CAUTIOUS then -- a suspicion turns out to be true
    local s = start_over(st, {})
    set(st, 'head', s.head)
    set(st, 'added', text(s.added))
    latest.boundary = s.head
  end
  latest.reach = later(latest.reach, cap(latest.boundary, ARGV[1]))
  latest.why = 'w'
  write_breaks(st, list)
else
  add_break(st, st.f.head, ARGV[1], 'w')
end
flush(st)
return state(st)
