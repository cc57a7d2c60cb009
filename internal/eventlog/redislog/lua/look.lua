-- What every record script starts with: one atomic look at a shard that founds
-- its record, finds out what happened while nobody looked, and notes what it
-- has seen. DESIGN.md lists the fields.

-- Every record script's first argument is the failover mode.
local CAUTIOUS = table.remove(ARGV, 1) == 'cautious'

-- IDs stay text: a Lua number is a double and would round them.
local function cmp(a, b)
  if a == b then return 0 end
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then
    if #am ~= #bm then return #am < #bm and -1 or 1 end
    return am < bm and -1 or 1
  end
  if #as ~= #bs then return #as < #bs and -1 or 1 end
  return as < bs and -1 or 1
end

local function later(a, b) return cmp(a, b) < 0 and b or a end

local function text(n) return string.format('%.0f', n) end

-- now is the server's clock in milliseconds: the only clock there is.
local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function set(st, name, value)
  if st.f[name] ~= value then
    st.f[name] = value
    st.dirty[#st.dirty + 1] = name
  end
end

local function flush(st)
  local args = {}
  for _, name in ipairs(st.dirty) do
    args[#args + 1] = name
    args[#args + 1] = st.f[name]
  end
  if #args > 0 then redis.call('HSET', st.rec, unpack(args)) end
  st.dirty = {}
end

-- identity is read once a script: INFO costs 2 microseconds here.
local identity
local function server()
  if not identity then
    local info = redis.call('INFO', 'replication')
    identity = {
      replid = string.match(info, 'master_replid:(%x+)'),
      second = string.match(info, 'master_replid2:(%x+)'),
    }
  end
  return identity
end

local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- member is the server's name in its cluster, or empty.
local clustered
local function member()
  if not clustered then
    local on = string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:1', 1, true)
    clustered = on and redis.call('CLUSTER', 'MYID') or ''
  end
  return clustered
end

-- process is what the record says of the server: its run, and its name in a
-- cluster.
local function process()
  if member() == '' then return run_id() end
  return run_id() .. ' ' .. member()
end

-- moved_here: in a cluster, did the slot move here? It did if the member that
-- had it is a master still. After a failover it is a replica, or is gone, and
-- this server's ID before is that one's.
local function moved_here(st)
  local from = string.match(st.f.run, ' (%x+)$')
  if not from or member() == '' or from == member() or server().second == st.f.replid then return false end
  for line in string.gmatch(redis.call('CLUSTER', 'NODES'), '[^\n]+') do
    local id, flags = string.match(line, '^(%x+) %S+ (%S+)')
    if id == from then
      return string.find(flags, 'master', 1, true) ~= nil and not string.find(flags, 'fail', 1, true)
    end
  end
  return false
end

-- proven: does anything show that this server, whose replication ID is new,
-- lost nothing? A second ID says that it descends from another: it was
-- promoted, or has loaded a snapshot. A server that nobody replicates drops
-- its ID after an hour, as the same process.
local function proven(st)
  if moved_here(st) then return true end
  if not string.match(server().second, '^0+$') then return false end
  if st.f.run == process() then return true end
  return string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1', 1, true) ~= nil
end

local function read_breaks(st)
  local list = {}
  for b, r, w, e in string.gmatch(st.f.breaks, '([%d%-]+):([%d%-]+):(%a):(%x*)') do
    list[#list + 1] = {boundary = b, reach = r, why = w, epoch = e}
  end
  return list
end

local function write_breaks(st, list)
  local out = {}
  for i, b in ipairs(list) do
    out[i] = b.boundary .. ':' .. b.reach .. ':' .. b.why .. ':' .. b.epoch
  end
  set(st, 'breaks', table.concat(out, ','))
end

local MAX_BREAKS = 16
local REACH_SLACK = 3600000

-- cap keeps one ID from the far future from putting every later one in doubt.
local function cap(boundary, reach)
  local top = text(now() + REACH_SLACK) .. '-0'
  if cmp(top, reach) < 0 then reach = top end
  return later(boundary, reach)
end

local function epoch() return string.sub(server().replid, 1, 8) end

local function add_break(st, boundary, reach, why)
  local list, kept = read_breaks(st), {}
  for _, b in ipairs(list) do
    local past = later(b.boundary, b.reach)
    if cmp(past, st.f.since) > 0 or cmp(past, st.f.swept) > 0 then kept[#kept + 1] = b end
  end
  kept[#kept + 1] = {boundary = boundary, reach = cap(boundary, reach), why = why, epoch = epoch()}
  while #kept > MAX_BREAKS do
    local a, b = kept[1], kept[2]
    b.boundary = later(a.boundary, b.boundary)
    b.reach = later(a.reach, b.reach)
    if a.why == 'w' or b.why == 'u' then b.why = a.why end
    table.remove(kept, 1)
  end
  write_breaks(st, kept)
end

local function xinfo(key)
  local r, s = redis.call('XINFO', 'STREAM', key), {}
  for i = 1, #r, 2 do
    if r[i] == 'length' then s.length = r[i + 1]
    elseif r[i] == 'last-generated-id' then s.head = r[i + 1]
    elseif r[i] == 'entries-added' then s.added = r[i + 1]
    elseif r[i] == 'max-deleted-entry-id' then s.deleted = r[i + 1]
    elseif r[i] == 'first-entry' and r[i + 1] then s.first = r[i + 1][1] end
  end
  return s
end

-- anchor adds an entry and deletes it, so that a stream exists, has an ID of
-- its own, and counts one removal: by that a stream which replaces it is told.
-- The ID lies above all that was noted before, as far as that is sane: one
-- that the lost stream has given out too would prove what it can't.
local function anchor(st)
  local ms = now()
  local noted = st.f.head and tonumber(string.match(st.f.head, '^(%d+)'))
  if noted then ms = math.max(ms, math.min(noted, ms + REACH_SLACK) + 1) end
  local got = redis.pcall('XADD', st.key, text(ms) .. '-0', 'anchor', '1')
  if type(got) ~= 'string' then got = redis.pcall('XADD', st.key, '*', 'anchor', '1') end
  if type(got) == 'string' then redis.call('XDEL', st.key, got) end
end

local function stream(st)
  local made = redis.call('EXISTS', st.key) == 0
  if made then anchor(st) end
  local s = xinfo(st.key)
  s.made = made
  return s
end

-- start_over takes an ID that nobody has as the new head, and lets the notes be
-- complete from there on only.
local function start_over(st, s)
  if not s.made then
    anchor(st)
    s = xinfo(st.key)
  end
  set(st, 'since', s.head)
  set(st, 'removed', text(s.added - s.length))
  return s
end

-- found begins a record: nothing from before can be proved complete.
local function found(st, s)
  s = start_over(st, s)
  if not st.f.breaks then set(st, 'breaks', '') end
  set(st, 'founded', s.head)
  set(st, 'swept', s.length == 0 and s.head or '0-0')
  set(st, 'marks', '')
  set(st, 'days', '')
  set(st, 'prune', '')
  redis.call('UNLINK', st.gone)
  redis.call('HSET', st.gone, '', s.head)
  return s
end

-- beckon stores an entry that has whoever reads it ask before he hands anything
-- over: he goes on past a break, and a device that leaves him for another gateway
-- before his watchdog looks would never be told. If there is no memory for it, the
-- watchdogs find the break.
local function beckon(st)
  redis.pcall('XADD', st.key, '*', 'dev', '*control', 'type', 'look', 'payload', '{}')
  return xinfo(st.key)
end

local function replaced(st, s, missing)
  local order, added = cmp(s.head, st.f.head), tonumber(st.f.added)
  return s.made or order < 0 or s.added < added or (order > 0) ~= (s.added > added) or missing < 0
end

-- tear notes up to where someone has removed entries. If it was between others,
-- a cursor whose entry is held proves nothing: what is gone may have come after
-- it. And if that is beyond where a gateway stood, it may have read past it.
-- To trim takes only from the front and doesn't move the highest deleted ID.
local function tear(st, s)
  local bound = s.head
  if s.first then bound = later(s.first, s.deleted) end
  local list = read_breaks(st)
  for _, b in ipairs(list) do
    if b.why == 'd' then
      b.boundary = later(b.boundary, bound)
      b.reach = b.boundary
      write_breaks(st, list)
      return
    end
  end
  add_break(st, bound, bound, 'd')
end

-- compare finds out what happened since the last look.
local function compare(st, s)
  local missing = s.added - s.length - tonumber(st.f.removed)
  if replaced(st, s, missing) then
    local reach = st.f.head
    s = found(st, s)
    add_break(st, s.head, reach, 'w')
    s = beckon(st)
  elseif missing > 0 then -- removed by someone else, without notes
    set(st, 'since', s.head)
    set(st, 'removed', text(s.added - s.length))
    st.foreign = missing
    tear(st, s)
  end
  if redis.call('HGET', st.gone, '') ~= st.f.founded then -- the notes were deleted
    set(st, 'since', s.head)
    redis.call('HSET', st.gone, '', st.f.founded)
  end
  if st.f.replid ~= server().replid and not proven(st) then
    -- A device whose cursor is the head that was left may have lost what came
    -- after it: the boundary has to be an ID that no device can have.
    if CAUTIOUS then s = start_over(st, s) end
    add_break(st, s.head, s.head, 'u')
  end
  return s
end

local NAMES = {'founded', 'since', 'swept', 'removed', 'head', 'added', 'replid', 'run', 'breaks', 'marks', 'days', 'prune'}

local function look(key, rec, gone)
  local st = {key = key, rec = rec, gone = gone, f = {}, dirty = {}, foreign = 0}
  local whole = true
  for i, v in ipairs(redis.call('HMGET', rec, unpack(NAMES))) do
    st.f[NAMES[i]] = v or nil
    whole = whole and v
  end
  local s = stream(st)
  if whole then
    s = compare(st, s)
  else
    s = found(st, s)
  end
  set(st, 'head', s.head)
  set(st, 'added', text(s.added))
  if st.f.replid ~= server().replid then
    set(st, 'replid', server().replid)
    set(st, 'run', process())
  end
  flush(st)
  return st
end

local function state(st)
  return {st.f.head, st.f.swept, st.f.since, st.f.founded, st.f.breaks, st.foreign}
end

local function held(st, id)
  return cmp(id, st.f.head) <= 0 and #redis.call('XRANGE', st.key, id, id) or 0
end
