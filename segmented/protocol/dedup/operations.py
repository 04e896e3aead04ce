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
from segmented.protocol.base import Operation

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ClaimKey(Operation[KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers]):
    """Take the seat of a key for a message that is about to be published, for `wait_ms` beyond its `delay_ms`."""

    record: RecordName
    message: str
    payload_print: str
    """Of the payload; compared where both sides have one."""
    task: str
    wait_ms: int
    remember_ms: int
    """For how long what is known outlives the last use, so that late copies are recognised."""
    delay_ms: int = 0
    delay_max_ms: int = 0
    """The longest time from the first claim of the seat to the due time, however often it was replaced; 0: no limit."""
    resend_ms: int = 0
    """After which a waiting message is to be sent once more by a repeat; 0: never."""
    is_blocked_by_run: bool = True
    """Is the key taken while a message of it runs?"""
    replaces: bool = False
    """Take the seat also from another message. Unless that one is at work, it follows this one: it is given the
    outcome, and begins only where this one never comes."""


@dataclass(frozen=True, slots=True)
class BeginRun(
    Operation[RunBegun | KeyHeld | OutcomeKept | PayloadDiffers | MessageCancelled | AttemptOutdated],
):
    """Begin to work on a message, under a lease of `ttl_ms`."""

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
    """Of the message, from 0: a later one ends an earlier one, an earlier one is refused."""
    follows: str = ""
    """The message whose repeat this one was when it was published, if it was one."""
    round: int = 0
    """The number under which this copy was sent round: the `next_round` of the answer that said so."""
    window_ms: int = 0
    """With `seat_end` time: for how long a message takes the seat that was not claimed when it was published."""


@dataclass(frozen=True, slots=True)
class RenewRun(Operation[Renewed | Lost]):
    """Push the end of the run's lease out to `ttl_ms` from now, if it lives and is the holder's."""

    record: RecordName
    message: str
    holder_id: str
    ttl_ms: int
    remember_ms: int
    run_on: RunOn = "key"


@dataclass(frozen=True, slots=True)
class FinishRun(Operation[RunFinished | RunOvertaken]):
    """Keep the outcome of a run and end it. Publishers get it for `keep_ms`, copies of the message for `remember_ms`.

    A run whose lease has lapsed is still finished as long as nobody else has begun. With `run_on` message publishers
    get the outcome only where the message has a window (`seat_end` time), until that ends.
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
class FinishRunWithEffect(Operation[RunFinished | RunOvertaken]):
    """As `FinishRun`, and do an effect in the same script: its outcome is what the effect's Lua returns, as JSON.

    `script` is the body of a Lua function that sees `KEYS` and `ARGV` of its own. It runs once or not at all; where it
    fails, nothing of the record changes, but what it wrote before stays. What it returns is kept as `null` when it is
    nothing, and as `unkept` when JSON has no form for it; of a number the first 14 digits are kept, so return longer
    ones as text.
    """

    finish: FinishRun
    script: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AbandonRun(Operation[Released | Lost]):
    """End a run without an outcome. With a `next_attempt` the message keeps its claim until that one arrives."""

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
class DoubtRun(Operation[Released | Lost]):
    """End a run in the unknown state: its holder gives it up, and does not know whether the work was done.

    From then on it is as a run with `on_lapse` unknown that has lapsed: nobody begins until it is settled or freed.
    """

    record: RecordName
    message: str
    holder_id: str
    remember_ms: int
    run_on: RunOn = "key"


@dataclass(frozen=True, slots=True)
class CancelMessage(Operation[MessageCancelled | StillRunning | OutcomeKept]):
    """See to it that a message never begins, and free what it holds. `is_dead`: its run is known to be over.

    What is unknown stays so, as does with `is_dead` a run that becomes unknown when it lapses: that the message does
    not begin any more says nothing about whether the work was done.
    """

    record: RecordName
    message: str
    remember_ms: int
    run_on: RunOn = "key"
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class FreeKey(Operation[Freed]):
    """End whatever holds a key, and give its outcome to no repeat any more. A holder at work is fenced.

    It cannot keep its outcome. A message that has ended stays so: late copies of it still find its outcome for
    `remember_ms`, and so do repeats that were published as such before and have not begun. With a `message`, whose
    run keeps out only its own copies, end that run.
    """

    record: RecordName
    message: str = ""
    remember_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class SettleRun(Operation[RunFinished | Freed | NotUnknown]):
    """Say what became of a run in the unknown state: this outcome, or, without a kind, that it was never done.

    With a `message`, of its own run; else of that of the key. A holder that comes back after all is overtaken.
    """

    record: RecordName
    remember_ms: int
    kind: OutcomeKind | None
    body: str = ""
    keep_ms: int = 0
    message: str = ""
    of_message: str = ""
    """Settle only if the run is of this message: whoever asked about that one knows nothing of a later one."""


@dataclass(frozen=True, slots=True)
class ReadRecord(Operation[RecordState | None]):
    """Read all that is known of a key; of one message alone where it is given."""

    record: RecordName
    message: str = ""


@dataclass(frozen=True, slots=True)
class ListClaims(Operation[tuple[Claim, ...]]):
    """List held keys of one partition, those first that end first; with `only_lapsed` those that have."""

    namespace: str
    partition: int
    limit: int
    only_lapsed: bool = False


@dataclass(frozen=True, slots=True)
class ListNamespaces(Operation[NamespacesPage]):
    """Name some namespaces in which a key is held, or those that know `key`, and the next cursor (0 at the end).

    One may come twice. On a cluster the master that serves `slot` is asked.
    """

    key: str = ""
    cursor: int = 0
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class ReapKey(Operation[Reaped]):
    """Free what has lapsed of a claim, and wake who waits for it.

    What else is known of the key is kept for `remember_ms`, or as long as it was to be, whichever is longer.
    """

    record: RecordName
    remember_ms: int
    message: str = ""
