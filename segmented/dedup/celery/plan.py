"""The deduplication of one task, created with the task: its rule, its identity and the terms of its runs."""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints
from weakref import WeakKeyDictionary

from kombu.utils import json

from segmented.dedup.celery.message import expires_in_ms, json_text, text_of, waits_ms
from segmented.dedup.celery.rule import OnceRule, latest, per, serial, unique
from segmented.dedup.celery.settings import OnceSettings
from segmented.dedup.dedup import Dedup
from segmented.dedup.identity import CallIdentity, Identity
from segmented.dedup.outcomes import OutcomeForm
from segmented.dedup.terms import DAY, NextAttempt, RunClaim
from segmented.errors import InvalidInput, OtherPayload
from segmented.locks.claim import new_holder_id
from segmented.models.dedup import RecordName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from celery import Celery

    from segmented.dedup.celery.message import OnceHeader
    from segmented.dedup.celery.settings import Configured
    from segmented.models.dedup import PayloadDiffers
    from segmented.plans.drivers import Store

    Arguments = tuple[Sequence[Any], Mapping[str, Any]]

_log = logging.getLogger("segmented.dedup")
RULE_KEPT: Final = 366 * DAY
_spaces: WeakKeyDictionary[Celery, dict[str, tuple[OnceRule, str]]] = WeakKeyDictionary()
"""The first rule of each key space of an app, and its task."""


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
        """Return for how long a message keeps its key beyond its delay."""
        return waits_ms(self.app, self.queue_ms, expires, delay_ms)

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
