-- KEYS: stream, the list of revoked devices. ARGV: kind of the order, device,
-- reason, and then the fields and values of its entry.
-- Stores the order and changes the list, or does neither. Returns 1 and the
-- entry's ID, or 0 and what the list has said already ('' if it has nothing).
-- The list is a hash, device -> "<entry ID> <reason>". Its field without a name
-- is the version: "<ID of the first order> <ID of the last> <number of orders>".
local kind, device = ARGV[1], ARGV[2]
local known = redis.call('HGET', KEYS[2], device)
if kind == 'revoke' and known then return {0, known} end
if kind == 'restore' and not known then return {0, ''} end
-- First of all: if it fails, nothing has changed.
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
if kind == 'disconnect' then return {1, id} end
if kind == 'revoke' then
  redis.call('HSET', KEYS[2], device, id .. ' ' .. ARGV[3])
else
  redis.call('HDEL', KEYS[2], device)
end
local version = redis.call('HGET', KEYS[2], '') or ''
local born, changes = string.match(version, '^(%d+%-%d+) %d+%-%d+ (%d+)$')
redis.call('HSET', KEYS[2], '', (born or id) .. ' ' .. id .. ' ' .. string.format('%.0f', (tonumber(changes) or 0) + 1))
return {1, id}
