-- Votes for locks of a quorum, for the operator's scripts. The fence says that a string is one.
-- KEYS  1 lock (string: holder id)
KINDS[#KINDS + 1] = {
  name = 'quorum',
  type = 'string',
  has_token = false,
  has_listeners = true,
}
