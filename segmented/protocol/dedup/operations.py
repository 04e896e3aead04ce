"""Operations on deduplication records. All are safe to run twice; times are those of the store's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    Claim,
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    NamespacesPage,
    NotUnknown,
    OnLapse,
    OutcomeKept,
    OutcomeKind,
    PayloadDiffers,
    Reaped,
    RecordName,
    RecordState,
    RunBegun,
    RunFinished,
    RunOn,
    RunOvertaken,
    SeatEnd,
    StillRunning,
)
from segmented.protocol.base import Operation, Release

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ClaimKey(Operation[KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers]):
    """Take the seat of a key for a message that is about to be published, for `wait_ms` beyond its `delay_ms`."""

    record: RecordName
    message: str
    payload_print: str
    """Fingerprint of the payload; compared if both sides have one."""
    task: str
    wait_ms: int
    remember_ms: int
    """How long a record outlives its last use, so that late copies are recognised."""
    delay_ms: int = 0
    delay_max_ms: int = 0
    """Maximum time from the first claim of the seat to the due time, over all replacements; 0: no limit."""
    resend_ms: int = 0
    """After this time, a repeat sends a waiting message again; 0: never."""
    is_blocked_by_run: bool = True
    """Whether the key is taken while one of its messages runs."""
    replaces: bool = False
    """Whether to take the seat from another message. That message follows this one unless it is running: it gets the
    outcome, and begins only if this one never arrives."""


@dataclass(frozen=True, slots=True)
class BeginRun(
    Operation[RunBegun | KeyHeld | OutcomeKept | PayloadDiffers | MessageCancelled | AttemptOutdated],
):
    """Begin to process a message, under a lease of `ttl_ms`."""

    record: RecordName
    message: str
    holder_id: str
    payload_print: str
    task: str
    ttl_ms: int
    remember_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"
    on_lapse: OnLapse = "again"
    attempt: int = 0
    """The message's attempt, from 0: a later one ends an earlier one, an earlier one is refused."""
    follows: str = ""
    """The message that this one repeats, if it was published as a repeat."""
    round: int = 0
    """The number with which this copy was sent again: the `next_round` of the answer that requested it."""
    window_ms: int = 0
    """With `seat_end` time: how long a message keeps a seat that was not claimed when it was published."""


@dataclass(frozen=True, slots=True)
class RenewRun(Operation[Renewed | Lost]):
    """Extend the run's lease to `ttl_ms` from now, if it is alive and the holder's."""

    record: RecordName
    message: str
    holder_id: str
    ttl_ms: int
    remember_ms: int
    run_on: RunOn = "key"


@dataclass(frozen=True, slots=True)
class FinishRun(Release[RunFinished | RunOvertaken]):
    """Keep the outcome of a run and end it. Publishers get it for `keep_ms`, copies of the message for `remember_ms`.

    A run with an expired lease can still finish, unless another one has begun. With `run_on` message, publishers get
    the outcome only if the message has a window (`seat_end` time), until the window ends.
    """

    record: RecordName
    message: str
    holder_id: str
    fencing_token: int
    kind: OutcomeKind
    body: str
    keep_ms: int
    remember_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"


@dataclass(frozen=True, slots=True)
class FinishRunWithEffect(Release[RunFinished | RunOvertaken]):
    """Like `FinishRun`, and run an effect in the same script: the outcome is the result of the effect's Lua, as JSON.

    `script` is the body of a Lua function with its own `KEYS` and `ARGV`. It runs once or not at all. If it fails, the
    record does not change, but earlier writes of the effect stay. No result is kept as `null`, and a result that JSON
    cannot represent as `unkept`. Numbers keep 14 digits: return longer ones as text.
    """

    finish: FinishRun
    script: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AbandonRun(Release[Released | Lost]):
    """End a run without an outcome. With a `next_attempt`, the message keeps its claim until that attempt arrives."""

    record: RecordName
    message: str
    holder_id: str
    remember_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"
    next_attempt: int | None = None
    wait_ms: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class DoubtRun(Release[Released | Lost]):
    """End a run in the unknown state: its holder gives up without knowing whether the work was done.

    The run then counts as an expired one with `on_lapse` unknown: nothing begins until it is settled or freed.
    """

    record: RecordName
    message: str
    holder_id: str
    remember_ms: int
    run_on: RunOn = "key"


@dataclass(frozen=True, slots=True)
class CancelMessage(Operation[MessageCancelled | StillRunning | OutcomeKept]):
    """Make sure that a message never begins, and free its claims. `is_dead`: its run is known to be over.

    An unknown run stays unknown. With `is_dead` this includes a run that becomes unknown when it expires: cancelling
    the message does not tell whether the work was done.
    """

    record: RecordName
    message: str
    remember_ms: int
    run_on: RunOn = "key"
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class FreeKey(Operation[Freed]):
    """End the claim on a key, and stop giving its outcome to repeats. A running holder is fenced.

    A fenced holder cannot keep its outcome. A message that has ended stays ended: for `remember_ms`, its late copies,
    and repeats published before that have not begun, still find its outcome. With a `message`, whose run blocks only
    its own copies, end that run.
    """

    record: RecordName
    message: str = ""
    remember_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class SettleRun(Operation[RunFinished | Freed | NotUnknown]):
    """Settle a run in the unknown state: with this outcome or, without a kind, as never done.

    With a `message`, settle that message's run, otherwise the key's. A holder that returns later is overtaken.
    """

    record: RecordName
    remember_ms: int
    kind: OutcomeKind | None
    body: str = ""
    keep_ms: int = 0
    message: str = ""
    of_message: str = ""
    """Settle only if the run is of this message, since the caller does not know about a later one."""


@dataclass(frozen=True, slots=True)
class ReadRecord(Operation[RecordState | None]):
    """Read the full state of a key or, if given, of one message alone."""

    record: RecordName
    message: str = ""


@dataclass(frozen=True, slots=True)
class ListClaims(Operation[tuple[Claim, ...]]):
    """List held keys of one partition, the earliest end first; with `only_lapsed` expired ones alone."""

    namespace: str
    partition: int
    limit: int
    only_lapsed: bool = False


@dataclass(frozen=True, slots=True)
class ListNamespaces(Operation[NamespacesPage]):
    """Return some namespaces with held keys, or with a record of `key`, and the next cursor (0 at the end).

    A namespace may appear twice. On a cluster, the master that serves `slot` answers.
    """

    key: str = ""
    cursor: int = 0
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class ReapKey(Operation[Reaped]):
    """Free the expired part of a claim, and wake its waiters.

    The rest of the record is kept for `remember_ms` or its previous lifetime, whichever is longer.
    """

    record: RecordName
    remember_ms: int
    message: str = ""
