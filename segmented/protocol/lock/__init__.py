"""The plain lock: one string key per name."""
