"""fencekit: `idempotent_task` around the body, keyed by the order, with the times and the retry of its README."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import redis
from fencekit import DistributedLock, IdempotencyGuard, idempotency_key
from fencekit.celery import idempotent_task

from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.dedup.app import Wrap

KEEP: Final = timedelta(hours=24)
LOCK_SECONDS: Final = 300

settings = Settings.from_environment()
app = make_app(settings)
client = redis.Redis.from_url(settings.store, decode_responses=True)
guard, lock = IdempotencyGuard(client), DistributedLock(client)


def _once(key: Callable[..., str]) -> Wrap:
    wrap: Wrap = idempotent_task(
        guard,
        lock,
        key=key,
        lock_resource=key,
        idempotency_ttl=KEEP,
        lock_ttl=timedelta(seconds=settings.lease_seconds or LOCK_SECONDS),
        retry_on_in_progress=True,
    )
    return wrap


def _charge_key(order_id: str, quantity: int = 1) -> str:  # noqa: ARG001  # a key gets the task's arguments
    return str(idempotency_key({"order_id": order_id}, namespace="charge"))


def _label_key(a: object, b: object = None) -> str:
    return str(idempotency_key({"a": a, "b": b}, namespace="label"))


charge, label, gather = add_tasks(app, {}, {}, charge_wrap=_once(_charge_key), label_wrap=_once(_label_key))
