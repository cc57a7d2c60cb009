-- KEYS: stream, record, notes. ARGV in milliseconds: the window, how far apart
-- marks are, how far apart day marks are, how long notes are kept.
-- Returns the state, the ID up to which entries are due or '', and the ID up
-- to which notes are to be dropped or ''.
local st = look(KEYS[1], KEYS[2], KEYS[3])
local t = now()

-- A mark is a time and an ID that had been reached by then. One from the
-- future (the clock was set back) counts as made now: kept longer, never less.
local function read_marks(name)
  local list = {}
  for ms, id in string.gmatch(st.f[name] or '', '(%d+):([%d%-]+)') do
    list[#list + 1] = {ms = math.min(tonumber(ms), t), id = id}
  end
  return list
end

local function write_marks(name, list)
  local out = {}
  for i, m in ipairs(list) do out[i] = text(m.ms) .. ':' .. m.id end
  set(st, name, table.concat(out, ','))
end

-- add marks an ID, unless nothing has moved or the last mark is too young.
local function add(list, id, floor, step)
  local last = list[#list]
  if cmp(id, last and last.id or floor) > 0 and (not last or t - last.ms >= step) then
    list[#list + 1] = {ms = t, id = id}
  end
end

-- expired is the newest mark of at least that age; older ones are dropped.
local function expired(list, age)
  while list[2] and list[2].ms <= t - age do table.remove(list, 1) end
  if list[1] and list[1].ms <= t - age then return list[1].id end
end

local marks, days = read_marks('marks'), read_marks('days')
add(marks, st.f.head, st.f.swept, tonumber(ARGV[2]))
local due = expired(marks, tonumber(ARGV[1]))
if due and cmp(due, st.f.swept) <= 0 then
  table.remove(marks, 1)
  due = nil
end
write_marks('marks', marks)

add(days, st.f.swept, st.f.founded, tonumber(ARGV[3]))
local bound = expired(days, tonumber(ARGV[4]))
if bound then
  table.remove(days, 1)
  -- since rises before the first note goes.
  set(st, 'since', later(st.f.since, bound))
  set(st, 'prune', bound)
end
write_marks('days', days)
flush(st)
return {state(st), due or '', st.f.prune}
