"""Answers to the operations on deduplication records.

A record belongs to a key. At most one message has its *seat*: it was published and has not begun. At most one has its
*run*: a holder with a lease works on it. And it keeps the last *outcome*, to be given to repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OutcomeKind = Literal["value", "effect", "error", "unkept", "cancelled"]
"""`value`: a result, as its dumper wrote it. `effect`: a result in JSON, as an effect in the store or an operator gave
it. `error`: a failure. `unkept`: a result that was too large or could not be dumped. `cancelled`: the message is not to
run."""
HeldState = Literal["waiting", "running", "unknown"]
"""`waiting`: published, not begun. `running`: a holder works on it. `unknown`: its holder died, and
somebody else has to find out whether the work was done."""
SeatEnd = Literal["start", "end", "time", "none"]
"""Until when a message keeps others from being published: it begins, it ends, a time is over, or it does not at all."""
RunOn = Literal["key", "message"]
"""Whom a run keeps out: every other message of the key, or only copies of its own message."""
OnLapse = Literal["again", "unknown"]
"""What a run is whose lease has lapsed: free to be run again, or `unknown` until somebody settles it."""


@dataclass(frozen=True, slots=True)
class RecordName:
    """Which record: `key` is a digest or an explicit idempotency key, unique within its `namespace`."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class KeyClaimed:
    """The message has the seat of the key and may be published, `delay_ms` from now."""

    replay: bool
    delay_ms: int = 0
    replaced: str | None = None
    """The message whose seat it was until now: from now on a repeat of this one, unless it is at work."""


@dataclass(frozen=True, slots=True)
class KeyHeld:
    """Another message has the key, or another holder this message."""

    message: str
    state: HeldState
    free_in_ms: int | None
    """When it lapses unless it is renewed; None: not by itself."""
    attempt: int = 0
    resend: bool = False
    """To the one publisher that asks: the message has waited for so long that it should be sent once more."""
    goes_round: bool = False
    """To a worker: this copy is to be sent again for later. Else a newer one has arrived, and this may be dropped."""
    next_round: int = 0
    """With `goes_round`: the `round` to send it with. Copies of a message end up as one, and never as none."""


@dataclass(frozen=True, slots=True)
class OutcomeKept:
    """A message of this key has ended, and this is how."""

    message: str
    kind: OutcomeKind
    body: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class PayloadDiffers:
    """The key was used with another payload, by this message."""

    message: str


@dataclass(frozen=True, slots=True)
class MessageCancelled:
    """The message was cancelled before it began."""


@dataclass(frozen=True, slots=True)
class AttemptOutdated:
    """A later attempt of the same message was published already; this copy is a fork of the chain of retries."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RunBegun:
    """The run is ours for `ttl_ms`, by the server's clock, counted from the request."""

    fencing_token: int
    ttl_ms: int
    replay: bool
    """True when this holder id had it already: a repeat after a lost reply."""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The outcome is kept."""

    replay: bool
    body: str = ""
    """What an effect in the store gave, as JSON."""


@dataclass(frozen=True, slots=True)
class RunOvertaken:
    """The run is not ours any more, so nothing was kept and no effect was done.

    It lapsed and went to another holder, was freed or settled, or the store lost its memory.
    """


@dataclass(frozen=True, slots=True)
class Freed:
    """What an operator ended: the state it was in (None: nothing was held), and whose it was."""

    state: HeldState | Literal["done"] | None
    message: str | None


@dataclass(frozen=True, slots=True)
class NotUnknown:
    """There is nothing to settle: no run of the key is in the unknown state."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """The message is being worked on by a holder whose lease lives for `free_in_ms`."""

    free_in_ms: int


@dataclass(frozen=True, slots=True)
class Seat:
    """A message that was published and has not begun."""

    message: str
    ends_in_ms: int
    sent_ago_ms: int
    """Since it was sent last; below 0 while it is not due yet."""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class LivingRun:
    """A holder at work."""

    message: str
    holder_id: str
    fencing_token: int
    attempt: int
    begun_ago_ms: int
    ends_in_ms: int
    """Unless it is renewed; below 0 when it has lapsed."""
    is_unknown: bool


@dataclass(frozen=True, slots=True)
class RecordState:
    """All that is known of a key; each part None when there is none."""

    task: str
    seat: Seat | None = None
    run: LivingRun | None = None
    outcome: OutcomeKept | None = None
    keeps_ms: int = 0
    """For how much longer the outcome is given to whoever publishes a repeat."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of the list of held keys. With a `message`, only copies of that message are kept out."""

    key: str
    message: str | None
    ends_in_ms: int | None
    """None: unknown, until somebody settles it."""


@dataclass(frozen=True, slots=True)
class NamespacesPage:
    """Some namespaces, and where to go on; the cursor 0 is the end."""

    names: tuple[str, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a look at a lapsed claim did: it `freed` it, found that it became `unknown`, or that it is `held` again."""

    result: Literal["freed", "unknown", "held"]
