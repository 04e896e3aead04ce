"""Compares ways to deduplicate Celery tasks under the same faults, with real workers that are killed.

A contender's own environment imports `settings`, `app`, `publisher` and the adapters, which need only Python, Celery
and that contender.
"""
