"""The benchmark `workers`: orders of real Celery workers beside an empty task; idle latency; recovery from a kill."""
