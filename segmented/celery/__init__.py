"""Celery workers that take submitted orders: the tasks, their settings, and the app that runs them as it stands."""
