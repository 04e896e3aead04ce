"""Cached values under a lock: one caller loads, the others read."""
