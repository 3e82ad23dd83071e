-- Extends the leases of permits. KEYS: permits. ARGV: lease, then the id of the call for each.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[1])
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], now + lease, ARGV[1 + i])
  redis.call('PEXPIRE', KEYS[i], lease)
end
return 1
