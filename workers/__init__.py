"""The Celery app of a checkout: start it unchanged (`celery -A workers worker`), or copy it."""
