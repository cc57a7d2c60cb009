-- KEYS: the members. ARGV: the name of whoever asks, his nonce, the TTL in ms,
-- and what he says: look, stay, leaving or gone.
-- Returns 1 if another process has his name, 1 if he is a member, and then for
-- each member its name and 1 if it leaves.
-- The members are a hash, name -> "<expiry in ms> <ttl> <nonce> <what it said>".
local name, nonce, ttl, says = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)

local function text(n) return string.format('%.0f', n) end

local function put(who, ends, lasts, by, said)
  redis.call('HSET', KEYS[1], who, text(ends) .. ' ' .. text(lasts) .. ' ' .. by .. ' ' .. said)
end

local raw = redis.call('HGETALL', KEYS[1])
local members, whose, longest = {}, {}, ttl
for i = 1, #raw, 2 do
  local ends, lasts, by, said = string.match(raw[i + 1], '^(%d+) (%d+) (%S+) (%a+)$')
  ends, lasts = tonumber(ends), tonumber(lasts)
  if not ends or ends <= now then
    redis.call('HDEL', KEYS[1], raw[i])
  else
    -- A clock that was ahead may have written it.
    if ends > now + lasts then put(raw[i], now + lasts, lasts, by, said) end
    members[#members + 1] = raw[i]
    whose[raw[i]] = {by, said}
    if lasts > longest then longest = lasts end
  end
end

local known = whose[name]
local taken = known and known[1] ~= nonce
if not taken and says ~= 'look' then
  if says == 'gone' then
    redis.call('HDEL', KEYS[1], name)
  else
    put(name, now + ttl, ttl, nonce, says)
    if not known then members[#members + 1] = name end
    known = {nonce, says}
    whose[name] = known
    redis.call('PEXPIRE', KEYS[1], text(2 * longest))
  end
end

local out = {taken and 1 or 0, known and not taken and says ~= 'gone' and 1 or 0}
for _, who in ipairs(members) do
  if who ~= name or says ~= 'gone' or taken then
    out[#out + 1] = who
    out[#out + 1] = whose[who][2] == 'leaving' and 1 or 0
  end
end
return out
