"""How a task is deduplicated: `@app.task(base=Once, once=OnceRule("{order_id}"))`.

The points until which a key is taken have the names of Sidekiq's unique jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from celery import Task

from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, OutcomeForm
from segmented.dedup.terms import DAY, DEFAULT_TTL, RunTerms
from segmented.errors import InvalidInput
from segmented.locks.durations import milliseconds, milliseconds_or_none
from segmented.locks.hints import ONCE_HINTS, hinted_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.clock import Duration
    from segmented.models.dedup import RunOn, SeatEnd

DEFAULT_REMEMBER: Final = 2 * 3600.0
"""Twice the visibility timeout that Celery sets for a Redis broker."""
DEFAULT_RESEND: Final = 60.0
DEFAULT_TIMEOUT: Final = 10.0
DEFAULT_DELAY: Final = 1.0
Point = Literal[
    "until_executing",
    "until_executed",
    "until_expired",
    "while_executing",
    "until_and_while_executing",
    "exactly_once",
]
OnPublish = Literal["return", "raise", "drop", "replace", "reschedule", "wait", "keep_last", "debounce"]
OnExecute = Literal["return", "raise", "drop", "reschedule", "wait"]
ON_PUBLISH: Final = ("return", "raise", "drop", "replace", "reschedule", "wait", "keep_last", "debounce")
ON_EXECUTE: Final = ("return", "raise", "drop", "reschedule", "wait")
ANSWERING: Final = frozenset({"return", "raise", "drop"})
"""Policies under which a repeat does not run."""
REPLACING: Final = frozenset({"replace", "keep_last", "debounce"})
"""Policies under which the newest payload runs."""


@hinted_options(ONCE_HINTS)
@dataclass(frozen=True, slots=True)
class OnceRule:
    """How a task is deduplicated. All times are in seconds. Checked when it is created.

    `key` is an expression over the task's arguments such as `"{order.id}"`, a callable that takes them, or None for all
    of them, defaults included. `point` sets how long the key is taken:

    | point | from | until |
    | --- | --- | --- |
    | `until_executing` | publication | the task begins |
    | `until_executed` | publication | the task ends, and for `keep` after it |
    | `until_expired` | publication | `window` is over |
    | `while_executing` | the task begins | it ends |
    | `until_and_while_executing` | publication; again as it begins | it begins; it ends: one waits while one runs |
    | `exactly_once` | publication | as `until_executed`; the result is kept with a `StoreEffect`, or a row in SQL |

    With any point, a message that is delivered again does not run again: copies are recognised for `remember`.
    """

    key: str | Callable[..., object] | None = None
    point: Point = "until_executed"
    on_publish: OnPublish = "return"
    """What a repeat gets that is published while the key is taken."""
    on_execute: OnExecute | None = None
    """The answer to a repeat that still reaches a worker: from another publisher, or in a chord, group or chain. None:
    `return`, or `reschedule` with the points that only keep runs apart."""
    payload: str | Callable[..., object] | bool | None = None
    """What else must be equal in a repeat, or OtherPayload is raised: True for all arguments, False for nothing, or an
    expression or callable as for `key`. None: all arguments, unless a repeat runs on its own by the policy or by
    `while_executing`."""
    keep: Duration | None = None
    """Seconds for which repeats get a result after the task has ended. None: 0, or a day with `exactly_once`. The
    record keeps the result for `remember` in any case, for copies of its message."""
    keep_failures: Duration = 0.0
    """Seconds for which repeats get a failure; 0: the next message published runs."""
    window: Duration | None = None
    """Seconds for which the key is taken with `until_expired`."""
    ttl: Duration = DEFAULT_TTL
    """Seconds for which a dead worker keeps its run; a live worker renews it."""
    queue_for: Duration = DAY
    """Seconds for which the key is kept for a message that has not begun, beyond its countdown."""
    resend_after: Duration = DEFAULT_RESEND
    """A message that has been queued for this many seconds may be lost: it is published again, under its own id, when a
    repeat is published. 0: never."""
    remember: Duration = DEFAULT_REMEMBER
    """Seconds for which a copy of a message is recognised. More than the broker's visibility timeout."""
    delay: Duration | None = None
    """With `debounce`: seconds without a repeat. With `reschedule`: seconds by which a repeat is delayed (None: 1
    s)."""
    delay_max: Duration | None = None
    """With `debounce`: maximum seconds from the first publication."""
    timeout: Duration = DEFAULT_TIMEOUT
    """With `wait`: for how long. Then a publisher gets InFlight, and a worker puts the message off."""
    size_max: int = DEFAULT_SIZE_MAX
    """Bytes of a result that is kept; a larger one is not, and repeats get its handle alone."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense together, in one sentence."""
        for what, found, known in (
            ("point", self.point, tuple(POINTS)),
            ("on_publish", self.on_publish, ON_PUBLISH),
            ("on_execute", self.in_worker, ON_EXECUTE),
        ):
            if found not in known:
                message = f"{what} is {found!r}: give one of {', '.join(known)}"
                raise InvalidInput(message)
        conflict = next(self._conflicts(), None)
        if conflict:
            raise InvalidInput(conflict)
        _ = self.terms(""), self.delay_ms, self.delay_max_ms, OutcomeForm(size_max=self.size_max)
        milliseconds_or_none(self.queue_for, "queue_for")
        milliseconds_or_none(self.resend_after, "resend_after")
        milliseconds_or_none(self.timeout, "timeout")

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse a task whose base class would not read the rule. Called when Celery makes the task's class."""
        if issubclass(owner, Task) and not hasattr(owner, "once_plan"):
            message = (
                f"task {owner.__name__!r} has {name}=..., but it would not be deduplicated: give it base=Once, too"
            )
            raise InvalidInput(message)

    def _conflicts(self) -> Iterator[str]:
        point, policy, terms = self.point, self.on_publish, POINTS[self.point]
        keeps, replaces = bool(self.keep or self.keep_failures), policy in REPLACING
        puts_off = policy in {"debounce", "reschedule"} or self.in_worker == "reschedule"
        said = f"on_publish is {policy!r}, "
        found = (
            (policy != "return" and not terms.claims, f"but with {point} no key is taken then: say it with on_execute"),
            (replaces and policy not in terms.replaces, f"which conflicts with {point}: the first may have been done"),
            (replaces and keeps, "which runs the newest, and keep gives repeats the result of the first"),
            (replaces and bool(self.payload), f"which takes any payload, so payload={self.payload!r} is not compared"),
            (policy == "debounce" and not self.delay, "which needs a delay: how many seconds it has to be quiet"),
            (self.delay_max is not None and policy != "debounce", "not 'debounce', so delay_max means nothing"),
            (self.delay is not None and not puts_off, "neither debounce nor reschedule, so delay means nothing"),
        )
        yield from (said + sentence for is_so, sentence in found if is_so)
        if keeps and not terms.keeps_results:
            yield f"keep is set, but with {point} the key is free before there is a result"
        if keeps and point == "until_expired":
            yield "keep is set, but with until_expired the window says for how long repeats get the result"
        if (self.window is not None) != (point == "until_expired"):
            yield f"window is {self.window!r} with point {point}: until_expired needs a window, and no other has one"

    @property
    def point_terms(self) -> PointTerms:
        """The effect of the point on a record."""
        return POINTS[self.point]

    @property
    def compared(self) -> str | Callable[..., object] | bool:
        """Part that must be equal in a repeat. A repeat that runs on its own may differ in everything but its key."""
        if self.payload is None:
            terms, answers = self.point_terms, self.in_worker in ANSWERING
            return terms.claims and self.on_publish in ANSWERING and (answers or terms.seat_end == "start")
        return self.payload

    @property
    def in_worker(self) -> OnExecute:
        """The policy for a repeat that reaches a worker: `on_execute`, or the default of the point.

        With the two points that only keep runs of a key apart, every message runs: one after another.
        """
        if self.on_execute is not None:
            return self.on_execute
        return "reschedule" if self.point in {"while_executing", "until_and_while_executing"} else "return"

    @property
    def compares_in_worker(self) -> bool:
        """Return whether a message that meets a run with another payload is refused, not if it runs after that one."""
        return self.point_terms.seat_end != "start" or self.in_worker in ANSWERING

    @property
    def delay_ms(self) -> int:
        """Milliseconds by which a repeat is delayed."""
        return milliseconds(DEFAULT_DELAY if self.delay is None else self.delay, "delay")

    @property
    def delay_max_ms(self) -> int:
        """Maximum delay of a debounced task; 0: no maximum."""
        return 0 if self.delay_max is None else milliseconds(self.delay_max, "delay_max")

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of a task."""
        kept = self.keep if self.keep is not None else DAY if self.point == "exactly_once" else 0.0
        keep_ms, failures_ms = (
            milliseconds_or_none(kept, "keep"),
            milliseconds_or_none(self.keep_failures, "keep_failures"),
        )
        point = self.point_terms
        return RunTerms(
            task,
            milliseconds(self.ttl, "ttl"),
            max(milliseconds(self.remember, "remember"), keep_ms, failures_ms),
            keep_ms,
            failures_ms,
            seat_end=point.seat_end,
            run_on=point.run_on,
            window_ms=0 if self.window is None else milliseconds(self.window, "window"),
        )


@dataclass(frozen=True, slots=True)
class PointTerms:
    """The effect of a point on a record."""

    seat_end: SeatEnd
    run_on: RunOn
    is_blocked_by_run: bool
    keeps_results: bool
    """Whether the key is still taken when the result exists, so that repeats can get it."""
    replaces: frozenset[str] = frozenset()
    """The replacing policies that make sense with it."""

    @property
    def claims(self) -> bool:
        """Whether the key is taken when a message is published."""
        return self.seat_end != "none"


POINTS: Final[dict[str, PointTerms]] = {
    "until_executing": PointTerms("start", "message", False, False, frozenset({"replace", "debounce"})),  # noqa: FBT003  # a table
    "until_executed": PointTerms("end", "key", True, True, REPLACING),  # noqa: FBT003  # a table
    "until_expired": PointTerms("time", "message", False, True),  # noqa: FBT003  # a table
    "while_executing": PointTerms("none", "key", False, False),  # noqa: FBT003  # a table
    "until_and_while_executing": PointTerms("start", "key", False, False, frozenset({"replace", "debounce"})),  # noqa: FBT003  # a table
    "exactly_once": PointTerms("end", "key", True, True),  # noqa: FBT003  # a table
}
