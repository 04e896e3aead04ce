"""Other ways to deduplicate Celery tasks, and ours, under the same faults: real workers, really killed.

What a contender's own environment imports (`settings`, `journal`, `bodies`, `app`, `publisher` and the adapters) needs
nothing but Python, Celery and that contender.
"""
