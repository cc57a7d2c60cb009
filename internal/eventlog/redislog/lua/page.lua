-- KEYS: streams. ARGV: how many bytes and how many entries are enough, the last
-- ID to read, and for each stream the position to read after.
-- Returns how many of the streams were looked at, and for each of them with
-- entries its place, 1 if there are more, and the entries.
local room, left, upto = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
-- Nothing can come after this one, and XRANGE doesn't take it as excluded.
local highest = '18446744073709551615-18446744073709551615'
-- How many streams are looked at in one call, and how many entries of one are
-- taken in one: what of them has no room was taken in vain.
local some, step = 8, 16

-- add puts entries behind those that were found, and returns whether there was
-- room for all.
local function add(found, entries)
  for n = 1, #entries do
    if room <= 0 or left <= 0 then return false end
    local size, fields = 96, entries[n][2]
    for i = 1, #fields do size = size + #fields[i] end
    found[#found + 1] = entries[n]
    room, left = room - size, left - 1
  end
  return true
end

-- rest adds what comes after a position, and returns whether there is more.
local function rest(found, key, after)
  while after ~= highest do
    local count = step
    if room <= 0 or left <= 0 then count = 1 end
    local entries = redis.call('XRANGE', key, '(' .. after, upto, 'COUNT', count)
    if not add(found, entries) then return true end
    if #entries < count then return false end
    after = entries[count][1]
  end
  return false
end

-- begun is the first entry of each stream that has one, from a place on. XREAD
-- looks at many streams in the time in which XRANGE looks at one.
local function begun(from)
  local to = math.min(from + some - 1, #KEYS)
  local call = {'XREAD', 'COUNT', 1, 'STREAMS'}
  for i = from, to do call[#call + 1] = KEYS[i] end
  for i = from, to do call[#call + 1] = ARGV[3 + i] end
  local by = {}
  for _, stream in ipairs(redis.call(unpack(call)) or {}) do by[stream[1]] = stream[2] end
  return by
end

local out, by = {0}, {}
for i, key in ipairs(KEYS) do
  if room <= 0 or left <= 0 then break end
  out[1] = i
  local found, after, more = {}, ARGV[3 + i], false
  if #KEYS == 1 then
    more = rest(found, key, after)
  else
    if i % some == 1 then by = begun(i) end
    if by[key] then
      add(found, by[key])
      more = rest(found, key, by[key][1][1])
    end
  end
  if #found > 0 then out[#out + 1] = {i, more and 1 or 0, found} end
end
return out
