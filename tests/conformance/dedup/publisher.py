"""A publisher in the environment of a contender: it reads requests, one a line, and answers each in one line.

`python -m tests.conformance.dedup.publisher ADAPTER`; an answer is `{"ok": ...}` or `{"error": "Type: message"}`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from celery import chain, chord, group
from celery.exceptions import TimeoutError  # noqa: A004  # Celery's own, not the built-in
from celery.signals import before_task_publish

from tests.conformance.dedup.settings import CHARGE, LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOGETHER_SECONDS: Final = 30.0


class Publisher:
    """The requests; each public method is one."""

    def __init__(self, adapter: str) -> None:
        """Import the adapter, as a web application imports its tasks."""
        self._tasks = importlib.import_module(adapter)
        self._handles: list[Any] = []

    def submit(self, task: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Call `delay`, and return the handle's data."""
        return self._kept(self._named(task).delay(*args, **kwargs))

    def submit_together(self, order_id: str, count: int) -> list[str | None]:
        """Submit the same order from that many threads at once, and return their ids."""
        barrier, ids = threading.Barrier(count), list[str | None]()

        def submit() -> None:
            barrier.wait(TOGETHER_SECONDS)
            try:
                ids.append(self._tasks.charge.delay(order_id, 1).id)
            except Exception as error:  # noqa: BLE001  # whatever it raises is what the caller gets
                ids.append(f"raised {told(error)}")

        threads = [threading.Thread(target=submit) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TOGETHER_SECONDS)
        return ids

    def submit_and_die(self, order_id: str) -> None:
        """Submit, and die at the point where the message would go to the broker."""

        def die(**_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        before_task_publish.connect(die, weak=False)
        self._tasks.charge.delay(order_id, 1)

    def send(self, order_id: str) -> dict[str, Any]:
        """Send a message by the task's name only."""
        return self._kept(self._tasks.app.send_task(CHARGE, args=[order_id, 1]))

    def result(self, handle: int, seconds: float) -> dict[str, Any]:
        """Wait for the result of a handle; a failed or unfinished task is a state, not an error."""
        found = self._handles[handle]
        try:
            value = found.get(timeout=seconds, propagate=False)
        except TimeoutError:
            value = None
        return {"state": found.state, "value": value if isinstance(value, (dict, int, str)) else repr(value)}

    def revoke(self, task_id: str) -> int:
        """Revoke a message, and return how many workers confirmed it."""
        return len(self._tasks.app.control.revoke(task_id, reply=True, timeout=5) or ())

    def chord(self, order_id: str) -> dict[str, Any]:
        """Submit an order twice in the header of a chord."""
        header = [self._tasks.charge.s(order_id, 1) for _ in range(2)]
        return self._kept(chord(header)(self._tasks.gather.s()))

    def group(self, order_id: str, seconds: float) -> list[Any]:
        """Submit an order twice in a group, and return the results."""
        found = group(self._tasks.charge.s(order_id, 1) for _ in range(2)).apply_async()
        slots = found.get(timeout=seconds, propagate=False)
        return [slot if isinstance(slot, (dict, type(None))) else repr(slot) for slot in slots]

    def chain(self, order_id: str) -> dict[str, Any]:
        """Submit an order twice in a chain, with another task after it."""
        links = (self._tasks.charge.si(order_id, 1), self._tasks.charge.si(order_id, 1), self._tasks.gather.si([]))
        return self._kept(chain(*links).apply_async())

    def _named(self, task: str) -> Any:  # noqa: ANN401  # a Celery task of any base
        return {CHARGE: self._tasks.charge, LABEL: self._tasks.label}[task]

    def _kept(self, handle: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever the contender returns
        self._handles.append(handle)
        return {"handle": len(self._handles) - 1, "id": None if handle is None else handle.id}


def told(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def main(adapter: str) -> None:
    """Report readiness, then answer requests until they end."""
    publisher = Publisher(adapter)
    _say({"ok": "ready"})
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        method: Callable[..., Any] = getattr(publisher, request.pop("do"))
        try:
            answer = {"ok": method(**request)}
        except Exception as error:  # noqa: BLE001  # whatever it raises is what the caller gets
            answer = {"error": told(error)}
        _say(answer)
    os._exit(0)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main(sys.argv[1])
