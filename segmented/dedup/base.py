"""The part that `Dedup` and `AsyncDedup` share: namespace, options, and the checks of a decorated function."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from segmented.dedup.identity import CallIdentity, Identity, explicit_key, payload_print
from segmented.dedup.terms import DedupOptions, RunClaim, checked_namespace
from segmented.errors import InvalidInput
from segmented.locks.call_keys import checked_function, name_of, shape_of
from segmented.locks.claim import new_holder_id
from segmented.models.dedup import RecordName
from segmented.protocol import SettleRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Duration

WHO: Final = "a Dedup"
NOTHING: Final = object()


class DedupBase:
    """Namespace and options of the sync and the async class."""

    def __init__(self, namespace: str, options: DedupOptions) -> None:
        """Create the shared part of both classes: the checked namespace and the options."""
        self.namespace = checked_namespace(namespace)
        self._options = options
        self._terms = options.terms(namespace)
        self._form = options.form

    def with_times(self, keep: Duration | None = None, ttl: Duration | None = None) -> Self:
        """Return the same deduplication, but for how long results are kept and how long a dead process holds a key."""
        other, options = copy(self), self._options
        times = options.keep if keep is None else keep, options.ttl if ttl is None else ttl
        DedupBase.__init__(other, self.namespace, replace(options, keep=times[0], ttl=times[1]))
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace!r})"

    def _identity(self, key: str, payload: object) -> Identity:
        return Identity(explicit_key(self.namespace, key), "" if payload is NOTHING else payload_print(payload))

    def _record(self, key: str) -> RecordName:
        return RecordName(self.namespace, explicit_key(self.namespace, key))

    def _settling(self, key: str, result: object) -> SettleRun:
        kind, body = self._form.written(result)
        terms = self._terms
        return SettleRun(self._record(key), terms.remember_ms, kind, body, keep_ms=terms.keep_ms)

    def _claim(self, identity: Identity, task: str | None, shown: str | None = None) -> RunClaim:
        holder_id = new_holder_id()
        terms = self._terms if task is None else self._options.terms(task)
        record = RecordName(self.namespace, identity.key)
        return RunClaim(shown or identity.key, holder_id, terms.ttl_ms, record, f"call-{uuid4().hex}", terms)


def checked_identity(
    dedup: DedupBase,
    function: Callable[..., Any],
    key: str | Callable[..., object] | None,
    *,
    payload: str | Callable[..., object] | bool,
    wanted: str,
) -> CallIdentity:
    """Return how the calls of `function` are identified. Raises InvalidInput if it is not a `wanted`, or a lambda."""
    checked_function(function, f"@{type(dedup).__name__}(...)")
    kind = shape_of(function)
    if kind != wanted:
        article = "an" if kind[0] == "a" else "a"
        message = f"{type(dedup).__name__} runs a {wanted}, and {name_of(function)} is {article} {kind}"
        raise InvalidInput(message)
    if name_of(function).endswith("<lambda>"):
        message = (
            f"{name_of(function)} has no name of its own, so its calls could not be distinguished from another lambda's"
        )
        raise InvalidInput(message)
    return CallIdentity(name_of(function), function, key=key, payload=payload)
