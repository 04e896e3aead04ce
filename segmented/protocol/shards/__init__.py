"""Pools in shards: the directory, and units on their way between two."""
