"""A message whose body cannot be decoded is kept: Celery acknowledges some with a line in its log, and ends at others.

What it ends at it would put back into the queue, to end the next worker. And what a child was given just before its
worker is stopped is not forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.worker.consumer import Consumer
from kombu.exceptions import ContentDisallowed, DecodeError
from vine import promise

from segmented.celery.handed_over import listen_to_the_end, remembered

if TYPE_CHECKING:
    from collections.abc import Callable


class KeepingConsumer(Consumer):
    """Celery's consumer, which lives on."""

    def on_close(self) -> None:
        """Give up what nobody has begun, but not what a child is about to begin."""
        with remembered(self.pool):
            super().on_close()

    def stop(self) -> None:
        """Stop; the pool is stopped next. `on_close` is left out where there is no broker."""
        super().stop()
        listen_to_the_end(self.pool)

    def on_decode_error(self, message: Any, exc: Exception) -> None:  # noqa: ANN401  # kombu's
        """Keep the message before it is acknowledged."""
        _keep(message, exc)
        super().on_decode_error(message, exc)

    def create_task_handler(self, promise: type[promise] = promise) -> Callable[..., Any]:
        """Return Celery's handler of messages, behind a look at the body; it is decoded once all the same."""
        handle = super().create_task_handler(promise)

        def handle_readable(message: Any) -> None:  # noqa: ANN401  # kombu's
            try:
                wrong = _fault_of(message.payload)
            except (DecodeError, ContentDisallowed):
                wrong = ""  # Celery has an answer to these
            except Exception as error:  # noqa: BLE001  # whatever a decoder says to what is no body of ours
                wrong = str(error) or type(error).__name__
            if wrong:
                _keep(message, ValueError(wrong))
                message.ack()
            else:
                handle(message)

        return handle_readable


def _fault_of(payload: object) -> str:
    """Say what Celery would stumble over in a decoded body: an object, or arguments, named arguments and the rest."""
    match payload:
        case dict() | [list() | tuple(), dict(), _]:
            return ""
        case _:
            return f"its body is of type {type(payload).__name__}, and not what Celery sends"


def _keep(message: Any, reason: BaseException) -> None:  # noqa: ANN401  # kombu's
    from segmented.celery.messages import keep_rejected  # noqa: PLC0415  # Celery loads this before it knows the settings

    keep_rejected(message=message, exc=reason)
