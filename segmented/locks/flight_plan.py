"""The options of a single flight, the entries that it keeps, and its two plans.

The first plan reads the value or gets the turn to load it; the second keeps what was loaded. Between them the sync and
async classes run the loader, which is the caller's code. Then they release the lock, whose message wakes one waiter per
process: it checks again and finds the value, and then the next in line checks.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from segmented.clock import Duration, in_seconds
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, LoaderFailed, StoreError, StoreRefused
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout, is_whole, milliseconds, milliseconds_or_none
from segmented.locks.lease_state import trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Cached, Held, MayLoad, Outpaced
from segmented.plans import Now, Plan, perform, wait_for
from segmented.protocol import ForgetCached, ReadCached, ReadOrAcquire, WriteCached

NOTHING: Final = Cached("none", "")
_log = logging.getLogger("segmented.locks")
DEFAULT_TTL: Final = 10.0
DEFAULT_KEEP_FAILURES: Final = 1.0
DEFAULT_SIZE_MAX: Final = 1024 * 1024
HOLD_OFF_MS_MIN: Final = 1_000
DETAIL_LENGTH_MAX: Final = 500
LOOKS_MAX: Final = 5
"""Looks at a value that cannot be read, which other callers keep again and again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A kept value, as `load` restored it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """The caller's turn to load the value; `old` is the value kept until then."""

    claim: LockClaim
    acquired: Acquired
    asked_at: float
    old: Cached | None


def look_plan(name: str, holder_id: str, options: FlightOptions) -> Plan[Opened | Turn]:
    """Return the kept value, or the caller's turn; wait while another caller loads a missing value.

    A value that `load` cannot read, for example one of an older release, is dropped as if it were missing. Raises
    LoaderFailed for a kept failure, AcquireTimeout if others load for longer than `timeout`, and LeaseLost if the
    answer arrives after the lease has expired; nothing is left behind.
    """
    for attempt in range(1, LOOKS_MAX + 1):
        found = yield from _one_look(name, holder_id, options)
        if isinstance(found, Turn):
            return found
        try:
            return Opened(options.opened(name, found))
        except LoaderFailed:
            raise
        except Exception as error:
            _log.warning("flight.unreadable", extra={"flight": name, "reason": described(error)})
            if attempt == LOOKS_MAX:  # others keep on writing such values
                raise
            yield from perform(ForgetCached(name, only=found))
    raise AssertionError  # the loop returns or raises


def _one_look(name: str, holder_id: str, options: FlightOptions) -> Plan[Cached | Turn]:
    claim = LockClaim(name, holder_id, options.lease_ttl_ms)
    try:
        answer, asked_at = yield from wait_for(
            ReadOrAcquire(name, holder_id, options.lease_ttl_ms, options.hold_off_ms),
            channel=claim.channel,
            timeout=checked_timeout(options.timeout),
            is_busy=lambda answer: isinstance(answer, Held),
            undo=claim.releasing,
        )
    except StoreRefused:  # perhaps the server's memory is full: reading needs none
        kept = yield from perform(ReadCached(name))
        if isinstance(kept, Cached):
            return kept
        raise
    if isinstance(answer, Cached):
        return answer
    if not isinstance(answer, MayLoad):
        raise AcquireTimeout(name, inf if options.timeout is None else in_seconds(options.timeout))
    if (yield from perform(Now())) >= trusted_until(asked_at, options.lease_ttl_ms):
        with suppress(StoreError):  # the lease expires on its own
            yield from perform(claim.releasing())
        raise LeaseLost(name, holder_id)
    old = answer.old
    return Turn(claim, answer.acquired, asked_at, old if old is not None and options.can_open(name, old) else None)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loader returned a value."""

    value: object


@dataclass(frozen=True, slots=True)
class Failed:
    """The loader raised, or its value could not be kept. The loader's own caller gets the error."""

    error: Exception


def landing_plan(turn: Turn, outcome: Loaded | Failed, options: FlightOptions) -> Plan[Cached | Failed]:
    """Keep what the loader returned, and return what its caller gets.

    1. a value is kept, and returned in the form that the others will get; so is None, if it is to be kept;
    2. a failed refresh leaves the old value in place;
    3. any other failure is kept for the others.
    """
    name = turn.claim.name
    if isinstance(outcome, Loaded):
        try:
            entry = options.entry(name, outcome.value)
        except Exception as error:  # noqa: BLE001  # any error of the caller's `dump` counts as a failure of its loader
            outcome = Failed(error)
        else:
            if entry is None:
                return NOTHING
            yield from _keep_plan(turn, entry)
            return entry.value
    if turn.old is not None:
        _log.warning("flight.refresh_failed", extra={"flight": name, "reason": described(outcome.error)})
        return turn.old
    failure = options.failure(outcome.error)
    if failure is not None:
        yield from _keep_plan(turn, failure)
    return outcome


def _keep_plan(turn: Turn, entry: Entry) -> Plan[None]:
    """Write the entry; if the store does not answer, only log it, since the value is still good."""
    claim, lives = turn.claim, (entry.ttl_ms, entry.refresh_in_ms)
    write = WriteCached(claim.name, claim.holder_id, turn.acquired.fencing_token, entry.value, *lives)
    try:
        answer = yield from perform(write)
    except StoreError as error:
        _log.warning("flight.not_kept", extra={"flight": claim.name, "reason": str(error)})
    else:
        if isinstance(answer, Outpaced):
            _log.info("flight.outpaced", extra={"flight": claim.name})


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to keep, and for how long."""

    value: Cached
    ttl_ms: int
    refresh_in_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightOptions:
    """The results that a single flight keeps, and for how many seconds; checked on creation. See `single_flight`."""

    keep: Duration
    keep_none: Duration | None = None
    keep_failures: Duration = DEFAULT_KEEP_FAILURES
    refresh_ahead: Duration | None = None
    ttl: Duration = DEFAULT_TTL
    timeout: Duration | None = DEFAULT_TIMEOUT
    dump: Callable[[Any], str | bytes] = json.dumps
    load: Callable[[Any], Any] = json.loads
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        milliseconds(self.keep, "keep")
        milliseconds(self.ttl, "ttl")
        milliseconds_or_none(self.keep_failures, "keep_failures")
        if self.keep_none is not None:
            milliseconds_or_none(self.keep_none, "keep_none")
        checked_timeout(self.timeout)
        ahead_ms = 0 if self.refresh_ahead is None else milliseconds(self.refresh_ahead, "refresh_ahead")
        if ahead_ms >= milliseconds(self.keep, "keep"):
            raise InvalidInput(
                f"refresh_ahead of {ahead_ms / 1000:g} s must be less than the keep of {in_seconds(self.keep):g} s"
            )
        if not is_whole(self.size_max) or self.size_max < 1:
            raise InvalidInput(f"size_max of {self.size_max!r} is not a number of bytes: give 1 or more")
        serializer: tuple[object, object] = (self.dump, self.load)
        if not all(callable(one) for one in serializer):
            message = "dump and load are callables: one makes str or bytes of a value, the other the value again"
            raise InvalidInput(message)

    @property
    def lease_ttl_ms(self) -> int:
        """Return how long a loader that has died keeps the others waiting."""
        return milliseconds(self.ttl, "ttl")

    @property
    def hold_off_ms(self) -> int:
        """Return how long a failed refresh delays the next one."""
        return max(HOLD_OFF_MS_MIN, milliseconds_or_none(self.keep_failures, "keep_failures"))

    def entry(self, name: str, value: object) -> Entry | None:
        """Return the entry to keep for a value, or None. Raises InvalidInput if it is too large, or as `dump` does."""
        if value is None:
            ttl_ms = milliseconds_or_none(self.keep if self.keep_none is None else self.keep_none, "keep_none")
            return Entry(Cached("none", ""), ttl_ms) if ttl_ms else None
        dumped = self.dump(value)
        size = len(dumped.encode() if isinstance(dumped, str) else dumped)
        if size > self.size_max:
            raise InvalidInput(f"the value of {name!r} has {size} bytes; the maximum is {self.size_max}")
        kept = Cached("text", dumped) if isinstance(dumped, str) else Cached("bytes", base64.b64encode(dumped).decode())
        ttl_ms = milliseconds(self.keep, "keep")
        ahead_ms = None if self.refresh_ahead is None else milliseconds(self.refresh_ahead, "refresh_ahead")
        return Entry(kept, ttl_ms, None if ahead_ms is None else ttl_ms - ahead_ms)

    def failure(self, error: Exception) -> Entry | None:
        """Return the entry to keep for a loader's error, its type and the start of its message, or None."""
        ttl_ms = milliseconds_or_none(self.keep_failures, "keep_failures")
        detail = _text_of(error)[:DETAIL_LENGTH_MAX]
        body = json.dumps({"kind": type(error).__qualname__, "detail": detail})
        return Entry(Cached("error", body), ttl_ms) if ttl_ms else None

    def opened(self, name: str, kept: Cached) -> Any:  # noqa: ANN401  # the kept value
        """Return the kept value. Raises LoaderFailed for a kept error."""
        match kept.kind:
            case "none":
                return None
            case "text":
                return self.load(kept.body)
            case "bytes":
                return self.load(base64.b64decode(kept.body))
        raise LoaderFailed(name, **json.loads(kept.body))

    def can_open(self, name: str, kept: Cached) -> bool:
        """Return whether `load` can read a kept value."""
        try:
            self.opened(name, kept)
        except Exception:  # noqa: BLE001  # any error of the caller's `load`
            return False
        return True


def described(error: Exception) -> str:
    """Return an error's type and message."""
    return f"{type(error).__qualname__}: {_text_of(error)}"


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  # an error of the caller's own, whose text fails in any way
        return f"its text cannot be read ({type(failure).__qualname__})"
