"""A Celery app of deduplicated tasks, for workers and publishers in processes of their own, some of which die.

`celery -A tests.support.workers.once_app worker` reads the environment: `ONCE_APP` is JSON of `Setup`. A process with
`fail` set ends with its whole group, by SIGKILL, at that point; these are wrapped around the library, which knows
nothing of them:

| point | where |
| --- | --- |
| `after_claim` | a publisher has the key, and has sent nothing |
| `after_publish` | a message was sent, and its publisher knows nothing of it |
| `after_retry_publish` | the next attempt was sent; this one is not put off, stored or acknowledged |
| `in_body` | the run has begun, and the body has noted that it works |
| `after_finish` | the outcome is kept; Celery has neither stored the result nor acknowledged the message |
| `before_ack` | the result is stored; the message is not acknowledged |
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import kombu.transport.redis
from celery import Celery
from celery.exceptions import Reject
from celery.signals import task_postrun

from segmented.dedup import StoreEffect
from segmented.dedup.celery import Once, OnceRule, execution, latest, per, serial, unique
from tests.support.workers.once_steps import Setup

RULES: Final[dict[str, OnceRule]] = {
    "plain": unique("{key}", ttl=2.0),
    "kept": unique("{key}", keep=60, keep_failures=60, ttl=1.0),
    "resent": unique("{key}", resend_after=0.2, keep=60),
    "lost": unique("{key}", resend_after=0.2, payload=False),
    "unique": unique("{key}"),
    "renewed": unique("{key}", ttl=15.0),
    "daily": per("day", "{key}", tz="Europe/Berlin"),
    "latest": latest("{key}"),
    "quiet": latest("{key}", quiet=0.5),
    "serial": serial("{key}", ttl=5.0),
    "charged": unique("{key}", keep_failures=60, ttl=5.0, key_space="orders"),
    "refunded": unique("{key}", ttl=5.0, key_space="orders"),
    "settled": unique("{key}", keep=60, ttl=5.0, key_space="decisions"),
    "dropped": unique("{key}", keep=60, payload=False, ttl=5.0, key_space="decisions"),
    "credited": serial("{key}", ttl=5.0, key_space="accounts"),
    "debited": serial("{key}", ttl=5.0, key_space="accounts"),
    "three": serial("{key}", at_once=3, ttl=5.0),
}


Body = Any
"""A bound task: `self` is a `Once` whose app has a `once_setup`."""
FOR_EVER: Final = 60.0


def work(self: Body, key: str, value: object = 0, seconds: float = 0.0, error: str = "") -> list[object]:
    setup = self.app.once_setup
    setup.note(self.name, key, value, "begin")
    setup.fail_at("in_body")
    setup.take(seconds)
    setup.note(self.name, key, value, "end")
    if error:
        raise ValueError(error)
    return [key, os.getpgrp() if value == "who" else value]


def retried(self: Body, key: str, times: int = 1, how: str = "raise", seconds: float = 0.0) -> int:
    retries = attempt(self, key, seconds)
    if retries >= times:
        return retries
    if how == "quiet":
        self.retry(countdown=0.1, throw=False)
        return -1
    raise self.retry(countdown=3.0 if how == "late" else 0.1)


def unsteady(self: Body, key: str, times: int = 1, seconds: float = 0.0) -> int:
    retries = attempt(self, key, seconds)
    if retries < times:
        raise ConnectionError(key)
    return retries


def points(self: Body, key: str, count: int, seconds: float = 0.0) -> StoreEffect:
    self.app.once_setup.note(self.name, key, count, "begin")
    self.app.once_setup.fail_at("in_body")
    self.app.once_setup.take(seconds)
    return StoreEffect("return redis.call('INCRBY', KEYS[1], ARGV[1])", ["points:" + key], [count])


def rejected(self: Body, key: str, requeue: bool) -> str:  # noqa: FBT001  # a task's argument
    if not has_run(self, key) or not requeue:
        raise Reject(key, requeue=requeue)
    return key


def endless(self: Body, key: str, kill: bool = False) -> str:  # noqa: FBT001, FBT002  # a task's argument
    if not has_run(self, key):
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FOR_EVER)
    self.app.once_setup.note(self.name, key, kill, "end")
    return key


def paged(self: Body, key: str, pages: int = 0, seconds: float = 0.0) -> int:
    self.app.once_setup.note(self.name, key, pages, "begin")
    if pages:
        self.apply_async((key, pages - 1))
        self.app.once_setup.take(seconds)
    return pages


def compensate(self: Body, key: str) -> None:
    self.app.once_setup.note(self.name, key, "-", "begin")


def gathered(self: Body, found: list[object]) -> list[object]:
    self.app.once_setup.note(self.name, "-", len(found), "begin")
    return found


def attempt(task: Body, key: str, seconds: float) -> int:
    """Note an attempt, and return its number, from 0. The second one takes so many seconds."""
    number: int = task.request.retries or 0
    task.app.once_setup.note(task.name, key, number, "begin")
    if number == 1:
        task.app.once_setup.take(seconds)
    return number


def has_run(task: Body, key: str) -> bool:
    """Note a beginning; was one noted before? (A copy that goes round is not marked as delivered again.)"""
    begun = f"{task.name} {key} - begin\n"
    log = Path(task.app.once_setup.log)
    found = log.exists() and begun in log.read_text()
    task.app.once_setup.note(*begun.split())
    return found


def add_tasks(app: Celery, base: type, lease: float) -> None:
    """Register all bodies with their rules, and with another lease than theirs, if one is given."""
    usual, brief = unique("{key}", ttl=2.0), unique("{key}", ttl=5.0)
    long, blind = unique("{key}", ttl=FOR_EVER), unique("{key}", ttl=FOR_EVER, payload=False)

    def add(name: str, body: Callable[..., object], once: OnceRule | None, **as_celery: object) -> None:
        once = replace(once, ttl=lease) if once is not None and lease else once
        app.task(base=base, name=name, once=once, bind=True, lazy=False, shared=False, **as_celery)(body)  # type: ignore[call-overload]  # whatever Celery takes

    plain = replace(RULES["plain"], key=app.conf.get("key_of_plain") or RULES["plain"].key)
    for name, rule in {**RULES, "plain": plain}.items():
        add(name, work, rule)
    add("retried", retried, usual, max_retries=5)
    add("retried_early", retried, usual, acks_late=False)
    add("retried_long", retried, long)
    add("retried_again", retried, unique("{key}"))
    add("unsteady", unsteady, usual, autoretry_for=(ConnectionError,), retry_backoff=False, default_retry_delay=0.1)
    add("points", points, unique("{key}", keep="1d", ttl=1.0))
    add("rejected", rejected, usual)
    add("endless", endless, brief, acks_on_timeout=False)
    add("ended", endless, blind, reject_on_worker_lost=False)
    add("gathered", gathered, None)
    add("paged", paged, usual)
    add("compensate", compensate, None)


class FailingCelery(Celery):
    """Dies before or after it has sent a message."""

    once_setup: Setup

    def send_task(self, name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        is_retry = bool(options.get("retries"))
        if not is_retry:
            self.once_setup.fail_at("after_claim")
        sent = super().send_task(name, *arguments, **options)
        self.once_setup.fail_at("after_retry_publish" if is_retry else "after_publish")
        return sent


class Failing(Once):
    """Dies after the outcome was kept."""

    abstract = True
    app: Any

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        try:
            return super().__call__(*arguments, **options)
        finally:
            self.app.once_setup.fail_at("after_finish")


def build(setup: Setup) -> FailingCelery:
    """Make an app with all tasks."""
    made = FailingCelery("once", broker=setup.broker, backend=setup.backend, set_as_current=False)
    made.once_setup = setup
    made.conf.update(
        once_url=setup.records,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": setup.visibility,
            "unacked_restore_interval": 0.2,
            "unacked_restore_throttle": 1,
            "polling_interval": 0.2,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
        },
    )
    made.conf.update(setup.conf)
    add_tasks(made, Failing, setup.lease)
    return made


def set_apart(setup: Setup) -> None:
    """Change the clock of this process, and its patience with records that are away."""
    transport: ModuleType = kombu.transport.redis
    if setup.clock_ahead:
        transport.time = lambda: time.time() + setup.clock_ahead  # type: ignore[attr-defined]  # what it imported
    execution.DOWN_SECONDS = setup.down_seconds  # type: ignore[misc]  # it is final for everybody else


app = build(Setup.here())
set_apart(app.once_setup)


@task_postrun.connect
def _die_before_acknowledging(**_: object) -> None:
    app.once_setup.fail_at("before_ack")
