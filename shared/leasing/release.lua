-- Give a lease back: counted with its error, or uncounted (asked to stop).
-- KEYS  1 lease  2 attempts (hash)  3 leased (hash)  4 errors (hash)  5 state (hash)
-- ARGV  1 token  2 unit  3 '1' if the attempt counts  4 error text, may be empty
-- Returns 1 if the lease was ours
keep_type(KEYS, {'string', 'hash', 'hash', 'hash', 'hash'})
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[3], ARGV[2])
local attempts = number(redis.call('HGET', KEYS[2], ARGV[2]))
if ARGV[3] ~= '1' and attempts > 0 then
  redis.call('HSET', KEYS[2], ARGV[2], attempts - 1)
  redis.call('HSET', KEYS[5], 'attempts', math.max(0, number(redis.call('HGET', KEYS[5], 'attempts')) - 1))
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[4], ARGV[2], ARGV[4])
  redis.call('HSET', KEYS[5], 'last_error', ARGV[2] .. ': ' .. ARGV[4])
end
return 1
