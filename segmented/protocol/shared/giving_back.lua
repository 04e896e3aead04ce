-- Give back some of an order's units, those of its last segments first. Shared by the scripts that change an order which
-- stands; they use shared/pool.lua, too.

-- The units that a record keeps of each segment, if it keeps `count` of them, as its text of parts; and what it gives back,
-- as a list of segments of today and their units. Fails before any write if the units of one of those cannot be read.
local function split_record(pool, record, count)
  local kept, given, left = {}, {}, count
  each_part(record, function(segment, units_there)
    local stays = math.min(units_there, left)
    left = left - stays
    if stays > 0 then
      kept[#kept + 1] = digits(segment) .. ':' .. digits(stays)
    end
    if units_there > stays then
      given[#given + 1], given[#given + 2] = segment % pool.segment_count, units_there - stays
    end
  end)
  local asked = {}
  for index = 1, #given, 2 do
    asked[#asked + 1] = given[index]
  end
  read_units(asked)
  for _, segment in ipairs(asked) do
    if unreadable[segment] then
      error(DRIFTED)
    end
  end
  local parts = table.concat(kept, ',')
  return parts == digits(record.segment) .. ':' .. digits(count) and '' or parts, given
end

-- Make the change that `split_record` has found: the caller counts the units that are reserved, or sold.
local function give_units_back(pool, record, parts, given, count)
  for index = 1, #given, 2 do
    add_units(given[index], given[index + 1])
  end
  local back = record.quantity - count
  pool.available = pool.available + back
  add_bought(pool, record.customer, -back)
  record.quantity, record.parts, record.listed = count, parts, nil
end
