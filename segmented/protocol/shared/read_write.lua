-- Shared by the scripts that take a read-write lock: fail for a lock with a mode or a token that no reader or writer wrote.
-- Its holder may be a writer.
local function check_lock(lock, mode, token)
  if mode and mode ~= 'read' and mode ~= 'write' then
    error({ err = 'UNREADABLE mode ' .. lock })
  end
  if mode then
    token_in(token or '', lock)
  end
end
