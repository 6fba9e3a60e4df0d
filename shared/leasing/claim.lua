-- Claim a unit of work: lease, attempt count and cancel check in one step.
-- KEYS  1 lease  2 state (hash)  3 attempts (hash)  4 leased (hash)  5 queued (zset)  6 done (bitmap)
-- ARGV  1 token  2 lease in ms  3 unit  4 ordinal  5 attempt limit  6 holder as JSON  7 longest lease in ms
-- Returns {outcome, attempt}: claimed | cancelled | done | held | exhausted
keep_type(KEYS, {'string', 'hash', 'hash', 'hash', 'zset', 'string'})
if redis.call('HGET', KEYS[2], 'cancelled') == '1' then return {'cancelled', 0} end
if redis.call('GETBIT', KEYS[6], ARGV[4]) == 1 then return {'done', 0} end
local attempts = number(redis.call('HGET', KEYS[3], ARGV[3]))
-- Our own token is there already when this script ran, and its answer was lost on the way: the client asks again.
if redis.call('GET', KEYS[1]) == ARGV[1] then return {'claimed', math.max(1, attempts)} end
-- No lease of ours is without an end, or ends later than the longest.
local ends = redis.call('PTTL', KEYS[1])
if ends > 0 and ends <= tonumber(ARGV[7]) then return {'held', 0} end
if attempts >= tonumber(ARGV[5]) then return {'exhausted', attempts} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[3], ARGV[3], attempts + 1)
redis.call('HSET', KEYS[2], 'attempts', number(redis.call('HGET', KEYS[2], 'attempts')) + 1)
redis.call('HSET', KEYS[4], ARGV[3], ARGV[6])
redis.call('ZREM', KEYS[5], ARGV[3])
return {'claimed', attempts + 1}
