"""Benchmarks of single parts: what a script, a task, an order in memory, a worker costs."""
