"""Schedulers of which several may run, under the same faults: ours and celery-redbeat."""
