"""The Celery app of a checkout, to start as it is (`celery -A workers worker`) or to copy."""
