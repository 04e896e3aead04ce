"""Pools in shards: the directory, and transfers of units between two."""
