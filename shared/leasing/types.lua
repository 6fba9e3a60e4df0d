-- In front of every script of the ledger. Anybody with a service's password may have written anything into its keys:
-- what is not of its type is taken away, and the reconciler fills it in again from storage.
local function keep_type(keys, kinds)
  for place, kind in ipairs(kinds) do
    local found = redis.call('TYPE', keys[place]).ok
    if found ~= kind and found ~= 'none' then redis.call('DEL', keys[place]) end
  end
end

-- A whole number from 0 to 2^31, as which what is no such number counts as 0.
local function number(text)
  local value = tonumber(text or '0')
  if not value or value ~= math.floor(value) or value < 0 or value > 2147483648 then return 0 end
  return value
end

