"""The Celery app: workers that take orders. Only what Celery needs lives here; what is protocol is in `segmented`."""
