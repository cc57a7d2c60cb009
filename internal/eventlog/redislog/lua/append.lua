-- KEYS: stream, the idempotency key's record. ARGV: fingerprint, window in
-- milliseconds, how many replicas are going to be waited for, number of events,
-- and for each the number of its
-- arguments and the arguments. Returns a word, the IDs ('0-0' where nothing was stored) and
-- the error that stopped it or ''.
-- No allow-oom: with memory full an append must fail, and before it has begun.
local want, n = ARGV[1], tonumber(ARGV[4])
local ids, here = {}, 0
local record = redis.call('GET', KEYS[2])
if record then
  local list, print = string.match(record, '^([^\n]*)\n(.*)$')
  for id in string.gmatch(list or '', '%S+') do
    -- A success is worth what the stream holds, not what the record says.
    local there = #redis.call('XRANGE', KEYS[1], id, id) == 1
    ids[#ids + 1] = there and id
    if there then here = here + 1 end
  end
  local same = print == want and #ids == n
  if here > 0 and not same then return {'conflict', {}, ''} end
  if same and here == n then
    -- Without a write there would be nothing to wait for.
    if ARGV[3] ~= '0' then redis.call('SET', KEYS[2], record, 'KEEPTTL') end
    return {'repeated', ids, ''}
  end
  if not same then ids = {} end
end

local failure, at = '', 5
for e = 1, n do
  local count = tonumber(ARGV[at])
  if not ids[e] and failure == '' then
    local got = redis.pcall('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + count))
    if type(got) == 'string' then
      ids[e] = got
      here = here + 1
    else
      failure = got.err
    end
  end
  ids[e] = ids[e] or '0-0'
  at = at + count + 1
end
if here > 0 then
  redis.call('SET', KEYS[2], table.concat(ids, ' ') .. '\n' .. want, 'PX', ARGV[2])
end
return {failure == '' and 'stored' or 'failed', ids, failure}
