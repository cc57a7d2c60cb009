-- KEYS: stream, positions. ARGV: a generation ('0' is none), and then a device
-- and an ID for each position.
-- Keeps each position that is higher than what is kept, or that replaces one
-- ahead of the stream's head. Returns 1; or 0, with nothing kept, if the
-- generation is lower than the field without a name says.

-- IDs and generations stay text: a Lua number is a double and would round them.
local function below(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function less(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if not am then return true end -- no ID: somebody else has put it there
  if am ~= bm then return below(am, bm) end
  return below(as, bs)
end

local function head()
  if redis.call('EXISTS', KEYS[1]) == 0 then return '0-0' end
  local r = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #r, 2 do
    if r[i] == 'last-generated-id' then return r[i + 1] end
  end
end

if ARGV[1] ~= '0' then
  local known = redis.call('HGET', KEYS[2], '') or ''
  if string.match(known, '^%d+$') and below(ARGV[1], known) then return 0 end
  if known ~= ARGV[1] then redis.call('HSET', KEYS[2], '', ARGV[1]) end
end
if #ARGV == 1 then return 1 end

local devices = {}
for i = 2, #ARGV, 2 do devices[#devices + 1] = ARGV[i] end
local kept, change, last = redis.call('HMGET', KEYS[2], unpack(devices)), {}, nil
for i, device in ipairs(devices) do
  local old, new = kept[i], ARGV[2 * i + 1]
  local take = not old or less(old, new)
  if not take and old ~= new then
    last = last or head()
    take = less(last, old)
  end
  if take then
    change[#change + 1] = device
    change[#change + 1] = new
  end
end
if #change > 0 then redis.call('HSET', KEYS[2], unpack(change)) end
return 1
