-- KEYS: for each shard, its lease and the generation's record. ARGV: the name
-- of whoever asks, his nonce, the TTL in ms; then for each shard: what he wants,
-- the generation that he holds, and one that the next must be over.
-- Returns for each shard the owner ('' for none), the generation, 1 if the lease
-- is this process's, and last, was and since of the record.
-- A lease is the owner's name, with an expiry. The record is a hash that stays:
-- generation, nonce and ttl of whoever took the lease last; last, his name; was,
-- the name before that other one; and since, the generation of the change. What somebody else
-- has put there is no record, and no lease that lasts.
local name, nonce, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local function text(n) return string.format('%.0f', n) end

-- number is 0 for what is none, or can't rise by one as a number of Lua.
local function number(s)
  local n = tonumber(s or '') or 0
  if n >= 0 and n < 9007199254740000 then return math.floor(n) end
  return 0
end

local function read(key)
  local owner = redis.pcall('GET', key)
  if type(owner) == 'table' then return '(no lease)' end
  return owner
end

local function record(key)
  local r = redis.pcall('HMGET', key, 'generation', 'nonce', 'ttl', 'last', 'was', 'since')
  if r.err then
    redis.call('UNLINK', key)
    r = {}
  end
  return {
    generation = number(r[1]), nonce = r[2], ttl = number(r[3]),
    last = r[4] or '', was = r[5] or '', since = number(r[6]),
  }
end

local out = {}
for i = 1, #KEYS / 2 do
  local key, kept = KEYS[2 * i - 1], KEYS[2 * i]
  local want, held, floor = ARGV[3 * i + 1], tonumber(ARGV[3 * i + 2]), tonumber(ARGV[3 * i + 3])
  local owner = read(key)
  local r = record(kept)
  local mine = owner == name and (r.nonce == nonce or not r.nonce)
  if want == 'drop' then
    if mine and r.generation == held then
      redis.call('UNLINK', key)
      owner, mine = false, false
    end
  elseif want == 'keep' and mine and r.generation == held and floor <= held then
    redis.call('PEXPIRE', key, ttl)
  elseif want ~= 'look' and (mine or not owner) then
    r.generation = math.max(r.generation + 1, held + 1, floor + 1, now)
    if r.last ~= name then r.last, r.was, r.since = name, r.last, r.generation end
    redis.call('SET', key, name, 'PX', ttl)
    redis.call('HSET', kept, 'generation', text(r.generation), 'nonce', nonce, 'ttl', ttl,
      'last', r.last, 'was', r.was, 'since', text(r.since))
    owner, mine = name, true
  elseif owner and not mine then
    -- One without an expiry, or whose expiry a clock has set that was ahead,
    -- would keep everybody out.
    local left, most = redis.call('PTTL', key), math.max(ttl, r.ttl)
    if left < 0 or left > most then redis.call('PEXPIRE', key, ttl) end
  end
  out[i] = {owner or '', text(r.generation), mine and 1 or 0, r.last, r.was, text(r.since)}
end
return out
