-- The name of this call, which the store adds as the last argument. Another attempt, after a lost reply, has the same name
-- with a "+" behind it: a change that has this name in the ledger was made by an earlier attempt, and so by this call.
local this_call, further = string.match(table.remove(ARGV), '^(%x+)(%+?)$')
local is_further = further == '+'
