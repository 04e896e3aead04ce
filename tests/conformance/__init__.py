"""Other libraries beside ours: locks under our conformance suite, and ways to deduplicate Celery tasks."""
