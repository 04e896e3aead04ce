"""The workers' app, whose consumer fails at a message for the task `end` as at a bug: the worker ends by that error."""

from collections.abc import Callable
from typing import Any

from vine import promise

from segmented.celery.app import app
from segmented.celery.consumer import KeepingConsumer


class EndingConsumer(KeepingConsumer):
    """A consumer with a bug."""

    def create_task_handler(self, promise: type[promise] = promise) -> Callable[..., Any]:
        """Return the handler of messages, which fails at one task."""
        handle = super().create_task_handler(promise)

        def fail_or_handle(message: Any) -> None:  # noqa: ANN401  # kombu's
            if message.headers.get("task") == "end":
                reason = "a bug of the consumer"
                raise RuntimeError(reason)
            handle(message)

        return fail_or_handle


app.conf.worker_consumer = "tests.support.workers.ending_app:EndingConsumer"
