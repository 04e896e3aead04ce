"""Deduplication records: who may publish a key, who runs it, and the outcome that repeats get."""
