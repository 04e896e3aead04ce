"""The benchmark `workers`: orders of real Celery workers and an empty task; idle latency; recovery from a kill."""
