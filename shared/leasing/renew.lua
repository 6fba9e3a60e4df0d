-- Renew a lease that is still ours; take it again where nobody holds it (Redis was wiped, or away for long).
-- KEYS  1 lease  2 state (hash)  3 leased (hash)
-- ARGV  1 token  2 lease in ms  3 unit  4 holder as JSON  5 longest lease in ms
-- Returns ok | cancelled | lost
keep_type(KEYS, {'string', 'hash', 'hash'})
if redis.call('HGET', KEYS[2], 'cancelled') == '1' then return 'cancelled' end
local holder = redis.call('GET', KEYS[1])
local ends = redis.call('PTTL', KEYS[1])
if holder and holder ~= ARGV[1] and ends > 0 and ends <= tonumber(ARGV[5]) then return 'lost' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
return 'ok'
