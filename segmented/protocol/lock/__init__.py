"""The plain lock: one string key a name."""
