"""The rows of the table, and the contenders.

A row is a known fault situation, what must hold in it, and the case that produces it. A contender has its adapter, its
pinned environment and its features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.environments import Environment
from tests.conformance.dedup.cases import answers, claims, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conformance.dedup.context import BenchContext, Finding

ALONE: Final = "alone"
SUCCEEDED: Final = "succeeded"
REDELIVERED: Final = "redelivered"
ONE_STEP: Final = "one step"
KEY: Final = "key"
HANDLE: Final = "handle"
PAYLOAD: Final = "payload"
KEPT: Final = "kept answers"
AT_WORKER: Final = "at the worker"
AT_DELAY: Final = "at delay"
WHEN_DOWN: Final = "when down"
WHY_NOT: Final = {
    ALONE: "it does not keep two runs apart",
    SUCCEEDED: "a message that comes again is run again, though its task has succeeded",
    REDELIVERED: "a message that comes again, and whose task has not succeeded, is run again",
    ONE_STEP: "what it records, and an effect outside of all stores, are not one step",
    KEY: "it knows messages, and no key of an order",
    HANDLE: "a repeat gets no handle of the first",
    PAYLOAD: "it does not compare what is submitted under a key",
    KEPT: "a key is free again when its task has ended: that a repeat runs then is by design",
    AT_WORKER: "it checks where its own `delay` is called, and nowhere else",
    AT_DELAY: "it checks where the task runs: what is submitted is sent",
    WHEN_DOWN: "there is no choice about it",
}
"""The features that a contender may offer, and the explanation if it does not."""
HERE: Final = Path(__file__).parent
ADAPTERS: Final = "tests.conformance.dedup.adapters"
CELERY: Final = ("celery", "kombu", "redis")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    row_id: str
    must_hold: str
    case: Callable[[BenchContext], Finding]
    needs: tuple[str, ...] = ()
    """Features without which a failure does not count; the first missing one is the reason."""


ROWS: Final = (
    Row("F1", "a worker killed in the body, after its effect: one effect", messages.killed_after_effect, (ONE_STEP,)),
    Row(
        "F4",
        "a visibility timeout of 3 s, a task of 8 s, two workers: one effect",
        messages.visibility_timeout,
        (ALONE,),
    ),
    Row(
        "F6",
        "16 threads of a new process submit one order at the same time: one run",
        messages.sixteen_together,
        (KEY,),
    ),
    Row("F6 handles", "and all 16 get the same handle", messages.sixteen_handles, (KEY, HANDLE)),
    Row("F7", "a lease of 2 s, a task of 6 s, a repeat after 3 s: one run", claims.lease_shorter_than_task, (KEY,)),
    Row("F8", "a task that retries runs again", claims.retry_runs),
    Row(
        "F8 fork",
        "a worker killed between publishing its retry and the acknowledgement: one effect",
        messages.forked_retry,
        (REDELIVERED,),
    ),
    Row("F10", "a queued task is revoked: the order can be submitted again, and runs", claims.revoked_then_again),
    Row("F11 chord", "the same order twice in a chord: the callback runs once, with both slots", answers.chord),
    Row("F11 group", "the same order twice in a group: both results are there", answers.group),
    Row("F11 chain", "the same order twice in a chain: the task after it runs once", answers.chain),
    Row("F12", "the broker refuses the message: the order can be submitted again at once", messages.broker_refuses),
    Row(
        "F12 killed",
        "a publisher killed between claim and message: the order runs within 15 s of a repeat",
        messages.publisher_killed,
    ),
    Row(
        "F13",
        "a worker killed in the body, its message gone with it: the order runs within 20 s of a repeat, once",
        claims.killed_in_body,
        (KEY,),
    ),
    Row(
        "F18",
        "a worker killed after the result was stored, before the acknowledgement: one effect",
        messages.killed_after_return,
        (SUCCEEDED,),
    ),
    Row("F19", "a hard time limit ends the task: a repeat runs, or gets the failure", claims.hard_time_limit),
    Row("F22", "the same order with another quantity: refused, with an error", answers.other_payload, (KEY, PAYLOAD)),
    Row("F23", "a repeat after the end: the stored result, and no run", answers.after_completion, (KEY, KEPT)),
    Row("F25 parts", '`a="1_b-2"` and `a=1, b=2` are two orders: two runs', claims.parts_do_not_run_together, (KEY,)),
    Row("F25 types", '`1` and `"1"` are two orders: two runs', claims.types_differ, (KEY,)),
    Row("F25 names", "`label(1)` and `label(a=1)` are one order: one run", claims.names_and_positions, (KEY,)),
    Row(
        "foreign",
        "a publisher without the library sends one order twice: one run",
        claims.foreign_publisher,
        (KEY, AT_WORKER),
    ),
    Row("shared", "a repeat during the run: the handle gives the first's result", answers.while_running, (KEY, HANDLE)),
    Row(
        "down refuse",
        "the store of the claims is down: an error within 10 s, and nothing is sent",
        messages.store_down_refused,
        (KEY, AT_DELAY),
    ),
    Row(
        "down run",
        "the same, where running is chosen instead: the order runs within 10 s",
        messages.store_down_run,
        (WHEN_DOWN,),
    ),
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to deduplicate tasks, or plain Celery."""

    name: str
    title: str
    """Its name on the page."""
    adapter: str
    environment: Environment | None
    """None: the project's own environment."""
    offers: frozenset[str]
    packages: tuple[str, ...] = CELERY
    """Packages whose versions are reported."""


OURS: Final = "segmented"
AT_RUN: Final = (ALONE, SUCCEEDED, REDELIVERED, KEY, KEPT, AT_WORKER)
"""Features of a library that claims the order in the worker and keeps the answer."""


def _other(name: str, title: str, adapter: str, offers: Iterable[str], *packages: str) -> Contender:
    """Return a contender with an environment of its own."""
    environment = Environment(name, HERE)
    return Contender(name, title, f"{ADAPTERS}.{adapter}", environment, frozenset(offers), (*packages, *CELERY))


CONTENDERS: Final = (
    Contender(
        OURS,
        "segmented `Once`",
        f"{ADAPTERS}.segmented_once",
        None,
        frozenset({*AT_RUN, HANDLE, PAYLOAD, AT_DELAY, WHEN_DOWN}),
        ("segmented-locks", *CELERY),
    ),
    _other("celery-once", "celery-once", "celery_once_library", {ALONE, KEY, AT_DELAY}, "celery-once"),
    _other(
        "celery-singleton",
        "celery-singleton",
        "celery_singleton_library",
        {ALONE, KEY, HANDLE, AT_DELAY},
        "celery-singleton",
    ),
    _other("powertools", "Powertools", "powertools_idempotency", AT_RUN, "aws-lambda-powertools"),
    _other("fencekit", "fencekit", "fencekit_library", AT_RUN, "fencekit"),
    replace(
        _other("celery", "Celery, deduplicating", "celery_deduplicating", {SUCCEEDED}), name="celery-deduplicating"
    ),
    _other("celery", "Celery", "celery_plain", ()),
)
