-- Reads buckets and permits of a limit. KEYS: buckets, then permits. ARGV: number of buckets; for each capacity, window. The
-- reply has for each bucket whether there is one and what is left, for each permit how many calls hold one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local buckets = tonumber(ARGV[1])
local reply = {}
for i = 1, buckets do
  local capacity, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local stored = redis.call('HMGET', KEYS[i], 'v', 'c', 'w', 't')
  local left = capacity
  if stored[1] then
    local v, c, w, t = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
    v = math.min(c * w, v + math.max(0, now - t) * c)
    left = math.floor(capacity - c + v / w)
  end
  reply[#reply + 1] = stored[1] and 1 or 0
  reply[#reply + 1] = left
end
for i = buckets + 1, #KEYS do
  reply[#reply + 1] = redis.call('ZCOUNT', KEYS[i], '(' .. string.format('%.0f', now), '+inf')
end
return reply
