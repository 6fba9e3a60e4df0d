-- Note a unit as done, once. Its receipt is in storage already, so this is a view, never a decision.
-- KEYS  1 lease  2 state (hash)  3 attempts (hash)  4 leased (hash)  5 queued (zset)  6 done (bitmap)  7 errors (hash)
-- ARGV  1 token  2 unit  3 ordinal  4 examples written  5 pairs quarantined
keep_type(KEYS, {'string', 'hash', 'hash', 'hash', 'zset', 'string', 'hash'})
if redis.call('SETBIT', KEYS[6], ARGV[3], 1) == 0 then
  redis.call('HSET', KEYS[2], 'written', number(redis.call('HGET', KEYS[2], 'written')) + ARGV[4])
  redis.call('HSET', KEYS[2], 'quarantined', number(redis.call('HGET', KEYS[2], 'quarantined')) + ARGV[5])
end
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('HDEL', KEYS[4], ARGV[2])
redis.call('HDEL', KEYS[7], ARGV[2])
redis.call('ZREM', KEYS[5], ARGV[2])
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
