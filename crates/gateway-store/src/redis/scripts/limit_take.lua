-- Takes from every bucket and permit of a call, or from none. All times are milliseconds of the server's clock.
-- KEYS: buckets, then permits, then the classes of these permits. ARGV: lease of a permit, id of the call, number of
-- buckets; for each bucket capacity, window, amount, whether it is enforced, class of the call, what is kept for other
-- classes (as prod=30,batch=10); for each permit capacity, whether it is enforced, class of the call, what is kept.
-- A bucket is a hash: v, its level times the window, so that a refill is a whole number; c and w, the capacity and window
-- that v was counted with; t, when; low, when it is or was last below a fifth; k:<class>, when the class last used it. The
-- classes of permits are a hash with low and k:<class>.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease, call, buckets = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local IDLE = 10000

local function level(key, capacity, window)
  local stored = redis.call('HMGET', key, 'v', 'c', 'w', 't')
  if not stored[1] then return capacity * window end
  local v, c, w, t = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
  v = math.min(c * w, v + math.max(0, now - t) * c)
  if c ~= capacity or w ~= window then
    v = math.floor((capacity - c + v / w) * window)
  end
  return v
end

-- What must stay for other classes: the shares of those that are not idle, or of all if little is or was left.
local function kept(key, shares, is_low)
  if shares == '' then return 0 end
  local low = redis.call('HGET', key, 'low')
  local all = is_low or (low and now - tonumber(low) < IDLE)
  local sum = 0
  for class, amount in string.gmatch(shares, '([^,=]+)=(%d+)') do
    local at = not all and redis.call('HGET', key, 'k:' .. class)
    if all or (at and now - tonumber(at) < IDLE) then sum = sum + tonumber(amount) end
  end
  return sum
end

local ok = true
local found = {}
for i = 1, buckets do
  local at = 3 + (i - 1) * 6
  local b = {
    key = KEYS[i], capacity = tonumber(ARGV[at + 1]), window = tonumber(ARGV[at + 2]), amount = tonumber(ARGV[at + 3]),
    enforced = ARGV[at + 4] == '1', class = ARGV[at + 5],
  }
  b.v = level(b.key, b.capacity, b.window)
  local need = b.amount + kept(b.key, ARGV[at + 6], b.v * 5 < b.capacity * b.window)
  b.wait = 0
  if b.amount > 0 then b.wait = math.max(0, math.ceil((need * b.window - b.v) / b.capacity)) end
  if b.wait > 0 and b.enforced then ok = false end
  found[i] = b
end

local permits = {}
local count = (#KEYS - buckets) / 2
for i = 1, count do
  local at = 3 + buckets * 6 + (i - 1) * 4
  local p = {
    key = KEYS[buckets + i], classes = KEYS[buckets + count + i], capacity = tonumber(ARGV[at + 1]),
    enforced = ARGV[at + 2] == '1', class = ARGV[at + 3], shares = ARGV[at + 4],
  }
  redis.call('ZREMRANGEBYSCORE', p.key, '-inf', now)
  p.held = redis.call('ZCARD', p.key)
  p.fits = p.held + 1 + kept(p.classes, p.shares, p.held * 5 > p.capacity * 4) <= p.capacity
  if not p.fits and p.enforced then ok = false end
  permits[#permits + 1] = p
end

local reply = { ok and 1 or 0 }
for _, b in ipairs(found) do
  local taken = ok and b.wait == 0
  if taken then b.v = b.v - b.amount * b.window end
  local full = b.capacity * b.window
  if taken then
    redis.call('HSET', b.key, 'v', string.format('%.0f', b.v), 'c', b.capacity, 'w', b.window, 't', now)
    if b.v * 5 < full then
      redis.call('HSET', b.key, 'low', now + math.ceil((full / 5 - b.v) / b.capacity))
    end
  end
  -- A class that is refused is not idle.
  if b.class ~= '' then redis.call('HSET', b.key, 'k:' .. b.class, now) end
  redis.call('PEXPIRE', b.key, math.max(0, math.ceil((full - b.v) / b.capacity)) + 2 * IDLE)
  reply[#reply + 1] = taken and 1 or 0
  reply[#reply + 1] = math.floor(b.v / b.window)
  reply[#reply + 1] = b.wait
end
for _, p in ipairs(permits) do
  local taken = ok and p.fits
  if taken then
    redis.call('ZADD', p.key, now + lease, call)
    redis.call('PEXPIRE', p.key, lease)
    p.held = p.held + 1
  end
  if p.class ~= '' or p.shares ~= '' then
    if p.class ~= '' then redis.call('HSET', p.classes, 'k:' .. p.class, now) end
    if p.held * 5 > p.capacity * 4 then redis.call('HSET', p.classes, 'low', now) end
    redis.call('PEXPIRE', p.classes, 2 * IDLE)
  end
  reply[#reply + 1] = taken and 1 or 0
  reply[#reply + 1] = p.fits and 1 or 0
  reply[#reply + 1] = p.held
end
return reply
