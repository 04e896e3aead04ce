"""Benchmarks of single parts: locks, stock, deduplication, workers, shards, memory, and what a call costs."""
