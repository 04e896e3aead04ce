"""Answers to the operations on deduplication records.

A record belongs to a key. At most one message has its *seat*: it was published and has not begun. At most one has its
*run*: a holder with a lease works on it. The record also keeps the last *outcome*, which repeats get.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OutcomeKind = Literal["value", "effect", "error", "unkept", "cancelled"]
"""`value`: a result, as its dumper wrote it. `effect`: a result in JSON, from an effect in the store or from an
operator. `error`: a failure. `unkept`: a result that was too large or could not be dumped. `cancelled`: the message
must not run.
"""
HeldState = Literal["waiting", "running", "unknown"]
"""`waiting`: published, not begun. `running`: a holder works on it. `unknown`: its holder died, and it must be found
out whether the work was done.
"""
SeatEnd = Literal["start", "end", "none"]
"""Until when a message keeps others from being published: its start, its end, or not at all."""
RunOn = Literal["key", "message"]
"""Which messages a run excludes: every other message of the key, or only copies of its own."""
OnLapse = Literal["again", "unknown"]
"""The state of a run after its lease has expired: free to run again, or `unknown` until it is settled."""


@dataclass(frozen=True, slots=True)
class RecordName:
    """A record's name: `key` is a digest or an explicit idempotency key, unique within its `namespace`."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class KeyClaimed:
    """The message has the seat of the key and may be published, `delay_ms` from now."""

    replay: bool
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeyHeld:
    """Another message has the key, or another holder this message."""

    message: str
    state: HeldState
    free_in_ms: int | None
    """Milliseconds until it expires unless it is renewed; None: it does not expire."""
    attempt: int = 0
    resend: bool = False
    """The message has waited so long that whoever gets this answer should send it again."""
    text: str = ""
    """With `resend`: what to publish, as its publisher gave it; "" if that is not known."""
    goes_round: bool = False
    """For a worker: send this copy again for later. If False, a newer copy has arrived, and this one may be dropped."""
    next_round: int = 0
    """With `goes_round`: the `round` to send it with. Several copies of a message become one, and never none."""
    wait_ms: int = 0
    """With `goes_round`: after how many milliseconds the copy is to arrive."""


@dataclass(frozen=True, slots=True)
class OutcomeKept:
    """A message of this key has ended with this outcome."""

    message: str
    kind: OutcomeKind
    body: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class PayloadDiffers:
    """The key was already used with another payload, by this message."""

    message: str
    task: str = ""
    """The task or function of that message."""
    is_kept: bool = False
    """Whether that message has ended, and its outcome is kept; else it waits or runs."""


@dataclass(frozen=True, slots=True)
class MessageCancelled:
    """The message was cancelled before it began."""


@dataclass(frozen=True, slots=True)
class AttemptOutdated:
    """A later attempt of the same message was already published; this copy is a fork of the chain of retries."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RunBegun:
    """The run is ours for `ttl_ms`, by the server's clock, counted from the request."""

    fencing_token: int
    ttl_ms: int
    replay: bool
    """True if this holder id already had it: a repeat after a lost reply."""
    next_text: str = ""
    """Text of another message that may run too, for the caller to publish; "" if there is none."""
    after: str = ""
    """The message whose holder has not said how its run ended; "" for none."""
    call: str = ""
    """The arguments of the latest call, which replace those of the message; "" for most rules."""


@dataclass(frozen=True, slots=True)
class MessageEarly:
    """A later call has put the message off: it is due in `due_in_ms`."""

    due_in_ms: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The outcome is stored."""

    replay: bool
    body: str = ""
    """The result of an effect in the store, as JSON."""
    next_text: str = ""
    """Text of the next message in the line, for the caller to publish; "" if there is none."""


@dataclass(frozen=True, slots=True)
class RunOvertaken:
    """The run is no longer ours, so nothing was stored and no effect was done.

    Its lease expired and another holder got it, it was freed or settled, or the store lost its data.
    """


@dataclass(frozen=True, slots=True)
class Freed:
    """The run or seat that an operator ended: its state (None: nothing was held), and its owner."""

    state: HeldState | Literal["done"] | None
    message: str | None


@dataclass(frozen=True, slots=True)
class NotUnknown:
    """Nothing to settle: no run of the key is in the unknown state."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A holder whose lease lives for `free_in_ms` is processing the message."""

    free_in_ms: int


@dataclass(frozen=True, slots=True)
class Seat:
    """A message that was published and has not begun."""

    message: str
    ends_in_ms: int
    sent_ago_ms: int
    """Milliseconds since it was last sent; negative while it is not due yet."""
    attempt: int = 0
    is_outlived: bool = False
    """Whether it was published with an expiry, and a call that waits for it has not expired."""


@dataclass(frozen=True, slots=True)
class LivingRun:
    """A run in progress."""

    message: str
    holder_id: str
    fencing_token: int
    attempt: int
    begun_ago_ms: int
    ends_in_ms: int
    """Milliseconds until it ends unless it is renewed; negative if it has expired."""
    is_unknown: bool


@dataclass(frozen=True, slots=True)
class RecordState:
    """The full state of a key; each part is None if it does not exist."""

    task: str
    seat: Seat | None = None
    run: LivingRun | None = None
    outcome: OutcomeKept | None = None
    keeps_ms: int = 0
    """How much longer repeats get the outcome."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of the list of held keys. With a `message`, only copies of that message are excluded."""

    key: str
    message: str | None
    ends_in_ms: int | None
    """None: unknown, until it is settled."""


@dataclass(frozen=True, slots=True)
class NamespacesPage:
    """Some namespaces, and the cursor for the next page; 0 at the end."""

    names: tuple[str, ...]
    cursor: int
