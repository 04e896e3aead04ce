"""The options of deduplication, checked when they are given, and the terms of a run that all its forms use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, OutcomeForm, dumped, loaded
from segmented.errors import InvalidInput
from segmented.keys import once_keys
from segmented.locks.claim import LeaseClaim
from segmented.locks.durations import checked_name, milliseconds, milliseconds_or_none
from segmented.models.ids import shortened
from segmented.protocol import AbandonRun, BeginRun, DoubtRun, FinishRun, RenewRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Duration
    from segmented.models.dedup import OnLapse, OutcomeKind, RecordName, RunOn, SeatEnd

DAY: Final = 24 * 3600.0
DEFAULT_TTL: Final = 30.0
NAMESPACE_LENGTH_MAX: Final = 100
OnCrash = Literal["again", "unknown"]
UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
WORDS: Final = re.compile(r"([1-9][0-9]*)([smhd])")


def read_words(duration: Duration | str) -> Duration | str:
    """Return the seconds of a text such as "30s", "5m", "2h" or "1d"; anything else unchanged."""
    match = WORDS.fullmatch(duration) if isinstance(duration, str) else None
    return int(match[1]) * UNITS[match[2]] if match else duration


def in_words(duration: Duration | str, what: str) -> Duration:
    """Return the same, but raise InvalidInput for any other text; `what` names the option."""
    found = read_words(duration)
    if isinstance(found, str):
        raise InvalidInput(
            f"{what} is a number of seconds, a timedelta or a text such as '30s', '5m', '2h' or '1d', "
            f"not {shortened(found)}"
        )
    return found


@dataclass(frozen=True, slots=True)
class RunTerms:
    """How a kind of call is deduplicated."""

    task: str
    """The name of the task or function, as operators see it."""
    ttl_ms: int
    remember_ms: int
    keep_ms: int
    keep_failures_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"
    on_lapse: OnLapse = "again"
    resend_ms: int = 0
    """Time after which a message that waits may be lost, and is sent again; 0: never."""
    at_once: int = 0
    """With `run_on` message: maximum number of messages of the key that run at a time; 0: no limit."""


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The next attempt of a message, which keeps its holds for `wait_ms` beyond `delay_ms`."""

    attempt: int | None
    wait_ms: int = 0
    delay_ms: int = 0
    expires_ms: int = 0
    """Time until it expires; 0: never."""
    text: str = ""
    """The message to publish again if this one is lost; "" if it is not known."""


@dataclass(frozen=True, slots=True)
class RunClaim(LeaseClaim):
    """One holder's run of one message."""

    kind = "run"

    record: RecordName
    message: str
    terms: RunTerms

    @property
    def channel(self) -> str:
        """Return the channel that notifies waiters that the key may be free or has an outcome."""
        return once_keys(self.record.namespace, self.record.key).freed

    def beginning(
        self, seen: str, *, attempt: int = 0, follows: str = "", round_number: int = 0, text: str = ""
    ) -> BeginRun:
        """Return the operation that begins the run; `seen` is the fingerprint of the payload."""
        return BeginRun(
            self.record,
            self.message,
            self.holder_id,
            seen,
            self.terms.task,
            self.ttl_ms,
            self.terms.remember_ms,
            seat_end=self.terms.seat_end,
            run_on=self.terms.run_on,
            on_lapse=self.terms.on_lapse,
            attempt=attempt,
            follows=follows,
            round=round_number,
            at_once=self.terms.at_once,
            text=text,
            resend_ms=self.terms.resend_ms,
        )

    def renewing(self, ttl_ms: int) -> RenewRun:
        """Return the operation that extends the lease."""
        return RenewRun(
            self.record, self.message, self.holder_id, ttl_ms, self.terms.remember_ms, run_on=self.terms.run_on
        )

    def releasing(self) -> AbandonRun:
        """Return the operation that ends the run without an outcome."""
        return self.abandoning()

    def abandoning(self, following: NextAttempt | None = None) -> AbandonRun:
        """Return the operation that ends the run without an outcome; its holds stay until a next attempt."""
        following = following or NextAttempt(None)
        return AbandonRun(
            self.record,
            self.message,
            self.holder_id,
            self.terms.remember_ms,
            seat_end=self.terms.seat_end,
            run_on=self.terms.run_on,
            next_attempt=following.attempt,
            wait_ms=following.wait_ms,
            delay_ms=following.delay_ms,
            expires_ms=following.expires_ms,
            text=following.text,
        )

    def doubting(self) -> DoubtRun:
        """Return the operation that ends the run in the unknown state."""
        return DoubtRun(self.record, self.message, self.holder_id, self.terms.remember_ms, run_on=self.terms.run_on)

    def owing(self, finish: FinishRun) -> OwedOutcome:
        """Return the claim of an outcome that the store could not keep."""
        terms = self.terms
        return OwedOutcome(self.name, self.holder_id, terms.remember_ms, self.record, self.message, terms, finish)

    def finishing(self, fencing_token: int, kind: OutcomeKind, body: str) -> FinishRun:
        """Return the operation that keeps the outcome for repeats, for as long as the terms say."""
        return FinishRun(
            self.record,
            self.message,
            self.holder_id,
            fencing_token,
            kind,
            body,
            keep_ms=self.terms.keep_failures_ms if kind == "error" else self.terms.keep_ms,
            remember_ms=self.terms.remember_ms,
            run_on=self.terms.run_on,
        )


@dataclass(frozen=True, slots=True)
class OwedOutcome(RunClaim):
    """A run that is over for its holder, and not for the store: to release it means to keep its outcome."""

    finish: FinishRun

    def releasing(self) -> FinishRun:  # type: ignore[override]  # the keeper only asks whether it was answered
        """Return the operation that keeps the outcome."""
        return self.finish


def checked_namespace(namespace: str) -> str:
    """Return a namespace. Raises InvalidInput if it cannot be part of a key."""
    namespace = checked_name(namespace, "a namespace of deduplication")
    if len(namespace) > NAMESPACE_LENGTH_MAX:
        raise InvalidInput(
            f"the namespace of deduplication has {len(namespace)} characters; the maximum is {NAMESPACE_LENGTH_MAX}"
        )
    return namespace


@dataclass(frozen=True, slots=True)
class DedupOptions:
    """Options of deduplication. Durations are seconds, timedeltas, or texts such as "30s", "5m", "2h" or "1d"."""

    keep: Duration | str = DAY
    """Seconds for which repeats get a result."""
    keep_failures: Duration | str = 0.0
    """Seconds for which repeats get a failure; 0: the next call with the key runs again."""
    ttl: Duration | str = DEFAULT_TTL
    """Seconds for which a process that died keeps its key; a live one renews its lease."""
    dump: Callable[[Any], str] = dumped
    load: Callable[[str], Any] = loaded
    size_max: int = DEFAULT_SIZE_MAX
    on_crash: OnCrash = "again"
    """Effect on the key when a process dies in a call, or the call raises an error."""

    def __post_init__(self) -> None:
        """Check all options. Raises InvalidInput for the first wrong one."""
        if self.on_crash not in get_args(OnCrash):
            raise InvalidInput(
                f'on_crash is {self.on_crash!r}: give "again", or "unknown" for a call that must not be made twice'
            )
        self.terms("")
        _ = self.form

    @property
    def form(self) -> OutcomeForm:
        """The format in which results are written."""
        return OutcomeForm(self.dump, self.load, self.size_max)

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of `task`."""
        keep_ms, failures_ms = (
            milliseconds_or_none(in_words(self.keep, "keep"), "keep"),
            milliseconds_or_none(in_words(self.keep_failures, "keep_failures"), "keep_failures"),
        )
        ttl_ms = milliseconds(in_words(self.ttl, "ttl"), "ttl")
        remember_ms = max(keep_ms, failures_ms, ttl_ms)
        return RunTerms(task, ttl_ms, remember_ms, keep_ms, failures_ms, on_lapse=self.on_crash)
