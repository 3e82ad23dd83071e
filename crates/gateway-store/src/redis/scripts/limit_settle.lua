-- Corrects what a call took from its buckets, and gives its permits back. KEYS: buckets, then permits. ARGV: id of the
-- call, number of buckets; for each bucket what to put back, negative if the call used more than it took.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local call, buckets = ARGV[1], tonumber(ARGV[2])
for i = 1, buckets do
  local stored = redis.call('HMGET', KEYS[i], 'v', 'c', 'w', 't', 'low')
  -- A bucket that is gone is full.
  if stored[1] then
    local v, c, w, t = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
    v = math.min(c * w, v + math.max(0, now - t) * c)
    v = math.min(c * w, v + tonumber(ARGV[2 + i]) * w)
    local low = stored[5] and tonumber(stored[5]) or 0
    if v * 5 < c * w then
      low = now + math.ceil((c * w / 5 - v) / c)
    else
      low = math.min(low, now)
    end
    redis.call('HSET', KEYS[i], 'v', string.format('%.0f', v), 't', now, 'low', low)
    redis.call('PEXPIRE', KEYS[i], math.max(0, math.ceil((c * w - v) / c)) + 20000)
  end
end
for i = buckets + 1, #KEYS do
  redis.call('ZREM', KEYS[i], call)
end
return 1
