#!lua
-- uses shared/once.lua
-- Return the text of the first message that waits for a turn, for the caller to publish it. Safe to run twice: a repeat
-- returns the one after it, and a message that was not published is called again.
-- ARGV     1 key
-- answers  {text or ""}
return { call_next() }
