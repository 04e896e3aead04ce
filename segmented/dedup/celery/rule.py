"""How a task is deduplicated: one of four rules, given as `@app.task(base=Once, once=unique("{order_id}"))`.

| rule | what runs |
| --- | --- |
| `unique(key)` | one message of a key at a time; repeats get its result, also for `keep` seconds after its end |
| `per(period, key)` | one message of a key in each hour, day, week, month or year |
| `latest(key)` | the newest arguments of a key, once it has been `quiet`: repeats replace those of the message |
| `serial(key)` | every message, up to `at_once` of a key at a time |
"""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_type_hints
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from celery import Task
from kombu.utils import json

from segmented.clock import WallClock
from segmented.dedup.celery.message import expires_in_ms, json_text, text_of
from segmented.dedup.celery.settings import OnceSettings
from segmented.dedup.dedup import Dedup
from segmented.dedup.identity import CallIdentity, Identity, checked_key
from segmented.dedup.operator import sentences
from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, OutcomeForm
from segmented.dedup.terms import DAY, DEFAULT_TTL, NextAttempt, RunClaim, RunTerms, in_words
from segmented.errors import InvalidInput, OtherPayload
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import is_whole, milliseconds, milliseconds_or_none
from segmented.models.dedup import RecordName, RecordState
from segmented.protocol import FreeKey, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from celery import Celery

    from segmented.clock import Clock, Duration
    from segmented.dedup.celery.message import OnceHeader
    from segmented.dedup.celery.outbox import Outgoing
    from segmented.dedup.celery.settings import Configured
    from segmented.models.dedup import Freed, PayloadDiffers, SeatEnd
    from segmented.plans.drivers import Store

    Key = str | Callable[..., object] | None
    Arguments = tuple[Sequence[Any], Mapping[str, Any]]


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
_log = logging.getLogger("segmented.dedup")
RULE_KEPT: Final = 366 * DAY
_spaces: WeakKeyDictionary[Celery, dict[str, tuple[OnceRule, str]]] = WeakKeyDictionary()
"""The first rule of each key space of an app, and its task."""


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
        return self._ms("queue_for")

    @property
    def quiet_ms(self) -> int:
        """Milliseconds without a call after which `latest` runs."""
        return self._ms("quiet")

    @property
    def at_most_ms(self) -> int:
        """Maximum milliseconds after the first call; 0: no maximum."""
        return 0 if self.at_most is None else milliseconds(in_words(self.at_most, "at_most"), "at_most")

    def _ms(self, name: str) -> int:
        return milliseconds_or_none(in_words(getattr(self, name), name), name)

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of a task."""
        keep_ms, failures_ms, is_serial = self._ms("keep"), self._ms("keep_failures"), self.kind == "serial"
        ttl_ms = milliseconds(in_words(self.ttl, "ttl"), "ttl")
        remember_ms = max(ttl_ms, milliseconds(in_words(self.remember, "remember"), "remember"), keep_ms, failures_ms)
        return RunTerms(
            task,
            ttl_ms,
            remember_ms,
            keep_ms,
            failures_ms,
            seat_end=SEAT_ENDS[self.kind],
            resend_ms=0 if is_serial else self._ms("resend_after"),
            run_on="message" if is_serial else "key",
            at_once=self.at_once if is_serial else 0,
        )


class TaskKeys:
    """Shows and frees the keys of a task's calls, as `charge.once.explain("o-7")`; publishes in a transaction."""

    def __init__(self, task: Any) -> None:  # noqa: ANN401  # a task of the class Once, whose module imports this one
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


class OncePlan:
    """The data that publication and execution of a task share."""

    def __init__(self, app: Celery, name: str, body: Callable[..., object], rule: OnceRule) -> None:
        """Create the plan, and check the rule against the signature of `body`. Raises InvalidInput, naming both."""
        self.app = app
        self._settings = OnceSettings(app)
        self.name = name
        self.rule = rule
        self.terms = rule.terms(name)
        self.queue_ms, self.quiet_ms, self.at_most_ms = rule.queue_ms, rule.quiet_ms, rule.at_most_ms
        self.form = OutcomeForm(json_text, json.loads, rule.size_max)
        self._arguments = ModelArguments(body)
        self._identity = CallIdentity(
            name, body, key=rule.key, payload=rule.payload, slot=rule.slot, key_space=rule.key_space
        )
        self._check_space()

    @property
    def settings(self) -> Configured:
        """Return the app's settings as they are now. Raises InvalidInput for an unusable one."""
        return self._settings.get()

    @property
    def store(self) -> Store:
        """Return the store of the app's records, in this process."""
        return self.settings.store

    def identity(
        self, arguments: Sequence[Any] | None, options: Mapping[str, Any] | None, *, given: str | None = None
    ) -> Identity:
        """Return the key and fingerprint of a call; `given` is a key that the publisher chose."""
        return self._identity.of(*self.as_sent(arguments, options), given=given)

    def other_payload(self, key: str, found: PayloadDiffers) -> OtherPayload:
        """Return the error for a key that another message used with another payload, or of another task."""
        if self.is_of_another_task(found):
            return OtherPayload(key, found.message, self._identity.said[0], task=found.task)
        return OtherPayload(key, found.message, *self._identity.said)

    def is_of_another_task(self, found: PayloadDiffers) -> bool:
        """Return whether the key is that of another task of the same `key_space`."""
        return self.rule.key_space is not None and found.task != self.name

    def _check_space(self) -> None:
        """Refuse tasks of one `key_space` that would not exclude each other, since runs of their kinds do not meet."""
        if self.rule.key_space is None:
            return
        spaces = _spaces.setdefault(self.app, {})
        rule, name = spaces.setdefault(self.rule.key_space, (self.rule, self.name))
        if (rule.kind, rule.at_once) != (self.rule.kind, self.rule.at_once):
            raise InvalidInput(
                f"tasks {name!r} and {self.name!r} share the key_space {self.rule.key_space!r}, and have other rules: "
                "give both unique(...), or both serial(...) with the same at_once"
            )

    def record(self, key: str) -> RecordName:
        """Return the record of a key."""
        return RecordName(self.settings.namespace, key)

    def record_to_show(self, key: str, message: str = "") -> RecordName:
        """Return the record of a key for an operator. Raises InvalidInput for `serial` without a message."""
        if self.rule.kind == "serial" and not message:
            raise InvalidInput(
                f"task {self.name!r} is serial: each message has a run of its own, and none holds the key. Find the "
                f"message with segmented dedup list, and use segmented dedup explain {key} --message ID, or free"
            )
        return self.record(key)

    def record_of(self, header: OnceHeader) -> RecordName:
        """Return the record of a message, in the namespace in which it was published, whatever the name of this app."""
        return RecordName(header.namespace, header.key) if header.namespace else self.record(header.key)

    def text(self, arguments: tuple[Sequence[Any] | None, Mapping[str, Any] | None], options: Mapping[str, Any]) -> str:
        """Return what publishes a message of the task again, if it may be lost; else ""."""
        if not self.terms.resend_ms:
            return ""
        return text_of(self.app, self.name, self.as_sent(*arguments), options)

    def as_sent(
        self, arguments: Sequence[Any] | None, options: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a call as a message has them."""
        return self._arguments.as_sent(arguments or (), options or {})

    def waits_ms(self, expires: datetime | str | float | None, delay_ms: int) -> int:
        """Return for how long a message keeps its key beyond its delay: an expired one has no outcome for a repeat."""
        expires_ms = expires_in_ms(self.app, expires)
        return max(1, min(self.queue_ms, expires_ms - delay_ms)) if expires_ms else self.queue_ms

    def next_attempt(
        self, attempt: int, delay_ms: int, expires: datetime | str | float | None, text: str = ""
    ) -> NextAttempt:
        """Return the next attempt of a message."""
        wait_ms = self.waits_ms(expires, delay_ms)
        return NextAttempt(attempt, wait_ms, delay_ms, expires_in_ms(self.app, expires), text)

    def compare_rule(self) -> None:
        """Log if the rule makes other keys than the one that the records know, and let them know this one."""
        rules = Dedup(self.store, self.settings.namespace, keep=RULE_KEPT)
        rule, name = self._identity.made_of, f"rule of {self.name}"
        known = rules.call(name, lambda: rule)
        if known != rule:
            _log.warning(
                "task %s: its keys were made of %s, and are now made of %s: calls do not meet messages and results "
                "with a key of the other kind",
                self.name,
                known,
                rule,
            )
            rules.free(name)
            rules.call(name, lambda: rule)

    def claim(self, header: OnceHeader) -> RunClaim:
        """Return a new claim to the run of a message, with a new holder id."""
        record = self.record_of(header)
        return RunClaim(header.key, new_holder_id(), self.terms.ttl_ms, record, header.message, self.terms)


def checked_rule(name: str, given: object) -> OnceRule:
    """Return the rule of a task; a text is a key expression of `unique`."""
    if isinstance(given, OnceRule):
        return given
    is_rule_unmade = any(given is one for one in (unique, per, latest, serial))
    if isinstance(given, str) or (callable(given) and not isinstance(given, type) and not is_rule_unmade):
        return unique(given)
    raise InvalidInput(
        f"once of task {name!r} is {given!r}: give unique(...), per(...), latest(...) or serial(...), a key "
        f"expression, or a callable"
    )


def body_of(task: type) -> Callable[..., object]:
    """Return a task class's `run` as its callers see it, without `self`."""
    found = inspect.getattr_static(task, "run")
    if isinstance(found, staticmethod | classmethod):
        return task.run  # type: ignore[attr-defined, no-any-return]  # every task class has one
    return MethodType(found, object())


class Fields(dict[str, Any]):
    """A model's dump. An expression reads its fields as items or, as of the model, as attributes."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any JSON
        """Return a field. Raises AttributeError if the model has none of that name."""
        if name not in self:
            raise AttributeError(name)
        return Fields(self[name]) if isinstance(self[name], dict) else self[name]


class ModelArguments:
    """The arguments of one task; unchanged unless it has `pydantic=True`."""

    def __init__(self, body: Callable[..., object]) -> None:
        """Find the models among the arguments of a task's body, as Celery wraps it."""
        self._dump: Callable[..., Arguments] | None = getattr(body, "dump_arguments", None)
        self._is_bound = isinstance(body, MethodType)
        self._signature = inspect.signature(body)
        self._models = _models(body) if self._dump is not None else {}

    def as_sent(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
        """Return the arguments with each model, and each dict for one, as the model's dump with all fields."""
        if self._dump is None:
            return arguments, options
        arguments, options = self._dump(arguments, options, bound=self._is_bound)
        try:
            bound = self._signature.bind(*arguments, **options)
        except TypeError:  # whoever computes the key raises it
            return arguments, options
        bound.apply_defaults()
        for name, model in self._models.items():
            value = bound.arguments.get(name)
            if isinstance(value, dict | model):
                with suppress(Exception):  # a validator may raise anything; then the dict counts as it is
                    bound.arguments[name] = Fields(model.model_validate(value).model_dump(mode="json"))
        return bound.args, bound.kwargs


def _models(body: Callable[..., object]) -> dict[str, Any]:
    plain = inspect.unwrap(body)
    try:
        hints = get_type_hints(plain)
    except (NameError, AttributeError, TypeError):  # as Celery does
        hints = {name: one.annotation for name, one in inspect.signature(plain).parameters.items()}
    named = {name: [one for one in (hint, *get_args(hint)) if _is_model(one)] for name, hint in hints.items()}
    return {name: models[0] for name, models in named.items() if models and name != "return"}


def _is_model(found: object) -> bool:
    return isinstance(found, type) and hasattr(found, "model_validate") and hasattr(found, "model_dump")
