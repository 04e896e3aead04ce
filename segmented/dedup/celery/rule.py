"""How a task is deduplicated: one of four rules, given as `@app.task(base=Once, once=unique("{order_id}"))`.

| rule | what runs |
| --- | --- |
| `unique(key)` | one message of a key at a time; repeats get its result, also for `keep` seconds after its end |
| `per(period, key)` | one message of a key in each hour, day, week, month or year |
| `latest(key)` | the newest arguments of a key, once it has been `quiet`: repeats replace those of the message |
| `serial(key)` | every message, up to `at_once` of a key at a time |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

from celery import Task

from segmented.clock import WallClock
from segmented.dedup.identity import checked_key
from segmented.dedup.operator import sentences
from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, OutcomeForm
from segmented.dedup.terms import DAY, DEFAULT_TTL, RunTerms, in_words
from segmented.errors import InvalidInput
from segmented.locks.durations import is_whole, milliseconds, milliseconds_or_none
from segmented.models.dedup import RecordState
from segmented.protocol import FreeKey, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock, Duration
    from segmented.dedup.celery.outbox import Outgoing
    from segmented.models.dedup import Freed, RecordName, SeatEnd

    Key = str | Callable[..., object] | None

DEFAULT_REMEMBER: Final = 2 * 3600.0
"""Twice the visibility timeout that Celery sets for a Redis broker."""
DEFAULT_RESEND: Final = 60.0
Kind = Literal["unique", "per", "latest", "serial"]
Period = Literal["hour", "day", "week", "month", "year"]
SLOTS: Final[dict[str, tuple[str, float]]] = {
    "hour": ("%Y-%m-%dT%H%z", 3_600.0),  # the offset tells the two equal hours in autumn apart
    "day": ("%Y-%m-%d", 25 * 3_600.0),
    "week": ("%G-W%V", 8 * DAY),
    "month": ("%Y-%m", 32 * DAY),
    "year": ("%Y", 367 * DAY),
}
"""The format of a slot's name, and at least the seconds of the longest slot."""
SEAT_ENDS: Final[dict[str, SeatEnd]] = {"unique": "end", "per": "end", "latest": "start", "serial": "none"}
AT_ONCE_MAX: Final = 1_000
WALL: Final = WallClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceRule:
    """How a task is deduplicated; made by `unique`, `per`, `latest` and `serial`.

    Times are seconds, timedeltas, or texts such as "30s", "5m", "2h" or "1d".

    Checked when it is created. With any rule, a message that is delivered again does not run again.
    """

    kind: Kind
    key: Key
    """Expression over the task's arguments such as `"{order.id}"`, a callable that takes them, or None for all."""
    payload: str | Callable[..., object] | bool = False
    """What else must be equal in a repeat, or OtherPayload is raised: True for all arguments, False for nothing, or an
    expression or callable as for `key`."""
    keep: Duration | str = 0.0
    """Seconds for which repeats get the result after the task has ended. The record keeps the result for `remember` in
    any case, for copies of its message."""
    keep_failures: Duration | str = 0.0
    """Seconds for which repeats get a failure; 0: the next message published runs."""
    ttl: Duration | str = DEFAULT_TTL
    """Seconds for which a dead worker keeps its run; a live worker renews it."""
    queue_for: Duration | str = DAY
    """Seconds for which the key is kept for a message that has not begun, beyond its countdown."""
    resend_after: Duration | str = DEFAULT_RESEND
    """A message that has been queued for this many seconds may be lost: it is published again unchanged when a repeat
    is published, or reaches a worker. 0: never."""
    remember: Duration | str = DEFAULT_REMEMBER
    """Seconds for which a copy of a message is recognised. More than the broker's visibility timeout."""
    size_max: int = DEFAULT_SIZE_MAX
    """Bytes of a result that is kept; a larger one is not, and repeats get its handle alone."""
    quiet: Duration | str = 0.0
    """With `latest`: seconds without a call after which the task runs."""
    at_most: Duration | str | None = None
    """With `latest`: seconds after the first call at which it runs in any case."""
    at_once: int = 1
    """With `serial`: maximum number of messages of a key that run at a time."""
    key_space: str | None = None
    """With `unique` and `serial`: tasks with the same text share their keys. With `unique`, a key that another task has
    is refused; with `serial`, the message waits for its turn."""
    slot: Callable[[], str] | None = None
    """With `per`: returns the name of the current slot, which is part of the key."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in one sentence."""
        _ = self.terms(""), self.queue_ms, self.quiet_ms, self.at_most_ms, OutcomeForm(size_max=self.size_max)
        if self.at_most is not None and self.at_most_ms < self.quiet_ms:
            raise InvalidInput(f"at_most of {self.at_most!r} is less than quiet of {self.quiet!r}: give quiet or more")
        if not is_whole(self.at_once) or not 1 <= self.at_once <= AT_ONCE_MAX:
            raise InvalidInput(f"at_once of {self.at_once!r} is not a number of runs: give 1 to {AT_ONCE_MAX}")
        if self.key_space is not None:
            checked_key(self.key_space, "a key_space")
            if self.key is None:
                raise InvalidInput(
                    f'key_space {self.key_space!r} needs a key that its tasks have in common, as in "{{order_id}}"'
                )

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse a task whose base class would not read the rule. Called when Celery makes the task's class."""
        if issubclass(owner, Task) and not hasattr(owner, "once_plan"):
            raise InvalidInput(
                f"task {owner.__name__!r} has {name}=..., but it would not be deduplicated: give it base=Once, too"
            )

    def __get__(self, task: Any, _: type | None = None) -> OnceRule | TaskKeys:  # noqa: ANN401  # as TaskKeys
        """Return the rule; of a task, as `charge.once`, what shows and frees its keys."""
        return self if task is None else TaskKeys(task)

    @property
    def answers(self) -> bool:
        """Return whether a repeat gets the result of the first, rather than running on its own."""
        return self.kind in {"unique", "per"}

    @property
    def queue_ms(self) -> int:
        """Milliseconds for which a message that waits keeps its key."""
        return milliseconds_or_none(in_words(self.queue_for, "queue_for"), "queue_for")

    @property
    def quiet_ms(self) -> int:
        """Milliseconds without a call after which `latest` runs."""
        return milliseconds_or_none(in_words(self.quiet, "quiet"), "quiet")

    @property
    def at_most_ms(self) -> int:
        """Maximum milliseconds after the first call; 0: no maximum."""
        return 0 if self.at_most is None else milliseconds(in_words(self.at_most, "at_most"), "at_most")

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of a task."""
        keep_ms = milliseconds_or_none(in_words(self.keep, "keep"), "keep")
        failures_ms = milliseconds_or_none(in_words(self.keep_failures, "keep_failures"), "keep_failures")
        ttl_ms = milliseconds(in_words(self.ttl, "ttl"), "ttl")
        remember_ms = max(ttl_ms, milliseconds(in_words(self.remember, "remember"), "remember"), keep_ms, failures_ms)
        return RunTerms(
            task,
            ttl_ms,
            remember_ms,
            keep_ms,
            failures_ms,
            seat_end=SEAT_ENDS[self.kind],
            resend_ms=0
            if self.kind == "serial"
            else milliseconds_or_none(in_words(self.resend_after, "resend_after"), "resend_after"),
            run_on="message" if self.kind == "serial" else "key",
            at_once=self.at_once if self.kind == "serial" else 0,
        )


class TaskKeys:
    """Shows and frees the keys of a task's calls, as `charge.once.explain("o-7")`; publishes in a transaction."""

    def __init__(self, task: Any) -> None:  # noqa: ANN401  # a task of the class Once, whose module imports this one
        """Create the view of a task."""
        self._task = task

    def __repr__(self) -> str:
        return f"<keys of {self._task.name!r}: {self._task.once_plan.rule!r}>"

    def explain(self, *arguments: Any, **passed_on: Any) -> str:  # noqa: ANN401  # any task arguments
        """Return what is known about the key of a call, in sentences: who holds it, and what a repeat would get."""
        plan, record = self._found(arguments, passed_on)
        state = plan.store.execute(ReadRecord(record)) or RecordState(plan.name)
        return "\n".join(sentences(record, state))

    def free(self, *arguments: Any, **passed_on: Any) -> Freed:  # noqa: ANN401  # any task arguments
        """End the run or message that holds the key of a call, and forget its outcome; the next call runs.

        A running body is not stopped: its outcome is refused, but its effects outside the store happen twice.
        """
        plan, record = self._found(arguments, passed_on)
        freed: Freed = plan.store.execute(FreeKey(record))
        return freed

    def publish_within(self, transaction: object, *arguments: Any, **passed_on: Any) -> Outgoing:  # noqa: ANN401  # any task arguments
        """Write a call to the outbox, so that it is published if and only if `transaction` commits.

        `transaction` is a Session or Connection of SQLAlchemy, or a connection of Django or psycopg. After the commit,
        `tell()` of what is returned publishes it; else `relay_outbox` does. Needs the table of `create_outbox`. Raises
        InvalidInput for arguments that have no form in JSON, and for a connection without a transaction.
        """
        written: Outgoing = import_module("segmented.dedup.celery.outbox").write(  # SQLAlchemy is optional
            self._task.once_plan, transaction, arguments, passed_on
        )
        return written

    def _found(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, RecordName]:
        plan = self._task.once_plan
        return plan, plan.record_to_show(plan.identity(arguments, options).key)


def unique(  # noqa: PLR0913  # each is an option of its own
    key: Key = None,
    *,
    keep: Duration | str = 0.0,
    keep_failures: Duration | str = 0.0,
    payload: str | Callable[..., object] | bool = True,
    ttl: Duration | str = DEFAULT_TTL,
    queue_for: Duration | str = DAY,
    resend_after: Duration | str = DEFAULT_RESEND,
    remember: Duration | str = DEFAULT_REMEMBER,
    size_max: int = DEFAULT_SIZE_MAX,
    key_space: str | None = None,
) -> OnceRule:
    """One message of a key is queued or running; a repeat gets its handle and, for `keep` seconds, its result.

    `keep` is a number of seconds, a timedelta, or a text such as "30s", "5m", "2h" or "1d". The fields of `OnceRule`
    describe the other options.
    """
    return OnceRule(
        kind="unique",
        key=key,
        payload=payload,
        keep=keep,
        keep_failures=keep_failures,
        ttl=ttl,
        queue_for=queue_for,
        resend_after=resend_after,
        remember=remember,
        size_max=size_max,
        key_space=key_space,
    )


def per(
    period: Period,
    key: Key = None,
    *,
    tz: str = "UTC",
    payload: str | Callable[..., object] | bool = True,
    ttl: Duration | str = DEFAULT_TTL,
    resend_after: Duration | str = DEFAULT_RESEND,
    size_max: int = DEFAULT_SIZE_MAX,
    clock: Clock = WALL,
) -> OnceRule:
    """One message of a key runs in each "hour", "day", "week", "month" or "year" of the calendar of `tz`.

    The publisher's clock says in which slot a call is. Repeats in the slot get the result; a failure frees the slot.
    """
    if period not in get_args(Period):
        raise InvalidInput(f"a period of {period!r} is not one: give one of {', '.join(get_args(Period))}")
    try:
        zone = UTC if tz == "UTC" else ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InvalidInput(f"tz of {tz!r} is not a time zone: give a name such as 'Europe/Berlin'") from error

    def slot() -> str:
        return f"{period} {datetime.fromtimestamp(clock.now(), zone).strftime(SLOTS[period][0])}"

    return OnceRule(
        kind="per",
        key=key,
        payload=payload,
        keep=SLOTS[period][1],
        ttl=ttl,
        resend_after=resend_after,
        size_max=size_max,
        slot=slot,
    )


def latest(
    key: Key = None,
    *,
    quiet: Duration | str = 0.0,
    at_most: Duration | str | None = None,
    ttl: Duration | str = DEFAULT_TTL,
    queue_for: Duration | str = DAY,
    resend_after: Duration | str = DEFAULT_RESEND,
    remember: Duration | str = DEFAULT_REMEMBER,
) -> OnceRule:
    """One message of a key waits, and runs with the arguments of the last call.

    It runs after `quiet` seconds without a call, and no later than `at_most` seconds after the first. A call during a
    run makes one more run after it. Calls with a key that waits publish nothing, and get the handle of that message.
    """
    return OnceRule(
        kind="latest",
        key=key,
        quiet=quiet,
        at_most=at_most,
        ttl=ttl,
        queue_for=queue_for,
        resend_after=resend_after,
        remember=remember,
    )


def serial(
    key: Key = None,
    *,
    at_once: int = 1,
    ttl: Duration | str = DEFAULT_TTL,
    remember: Duration | str = DEFAULT_REMEMBER,
    key_space: str | None = None,
) -> OnceRule:
    """Every message runs, up to `at_once` of a key at a time, in the order in which they reach the workers.

    With a `key_space`, these are the messages of all tasks that have it.
    """
    return OnceRule(kind="serial", key=key, at_once=at_once, ttl=ttl, remember=remember, key_space=key_space)
