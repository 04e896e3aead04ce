#!lua flags=allow-oom
-- uses shared/pool.lua
-- Free the segment of a grant before its lease ends; the units stay reserved for the order. Safe to run twice.
-- ARGV     1 order_id   2 holder_id
-- answers  {"unknown"}   no such order   {"released"}   {"lost"}   another holder has it, or none
local pool = read_pool()
local record = read_order(ARGV[1])
if not record then
  return { 'unknown' }
end
if record.holder ~= ARGV[2] or not has_lease(record) then
  return { 'lost' }
end
free_segment(pool, record)
return { 'released' }
