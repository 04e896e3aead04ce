"""The protocol of a deduplicated call: begin it or learn why not, and keep its outcome.

A `StoreEffect` is an effect in the store itself. It runs in the same script that keeps the outcome: once, or not at
all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segmented.errors import (
    AttemptSuperseded,
    CallCancelled,
    EffectUnknown,
    InFlight,
    InvalidInput,
    OtherPayload,
    RunLost,
    SegmentedError,
)
from segmented.locks.lease_state import trusted_until
from segmented.models.dedup import (
    AttemptOutdated,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
)
from segmented.plans import Now, Plan, Within, perform
from segmented.plans.waiting import UNDO_SECONDS, wait_for
from segmented.protocol import FinishRunWithEffect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.dedup.terms import RunClaim
    from segmented.protocol import BeginRun, FinishRun

Begun = tuple[RunBegun, float]
"""The server's answer, and the local time at which its lease starts."""


def is_in_flight(answer: object) -> bool:
    """Return whether waiting can help: not if only a human or a resolver can end the state."""
    return isinstance(answer, KeyHeld) and answer.state != "unknown"


def begin_plan(claim: RunClaim, beginning: BeginRun, timeout: float | None) -> Plan[Begun | OutcomeKept]:
    """Begin the run, waiting up to `timeout` seconds for another call with the key to end (0: do not wait).

    Raises the error of `refusal` for the answer, and RunLost if beginning took longer than the lease; nothing is left
    behind then.
    """
    answer, asked_at = yield from wait_for(
        beginning, channel=claim.channel, timeout=timeout, is_busy=is_in_flight, undo=claim.releasing
    )
    if isinstance(answer, RunBegun):
        now = yield from perform(Now())
        if now < trusted_until(asked_at, answer.ttl_ms):
            return answer, asked_at
        with suppress(SegmentedError):  # the lease expires on its own
            yield from perform(Within(claim.releasing(), now + UNDO_SECONDS))
        raise RunLost(claim.name)
    if isinstance(answer, OutcomeKept):
        return answer
    raise refusal(claim.name, answer)


def refusal(
    key: str, answer: KeyHeld | PayloadDiffers | MessageCancelled | MessageEarly | AttemptOutdated | None
) -> InFlight | OtherPayload | EffectUnknown | CallCancelled | AttemptSuperseded:
    """Return the error that says why a call is not run."""
    match answer:
        case KeyHeld(message, "unknown"):
            return EffectUnknown(key, message)
        case KeyHeld(message, state, free_in_ms):
            return InFlight(key, message, state, None if free_in_ms is None else free_in_ms / 1000)
        case PayloadDiffers(message):
            return OtherPayload(key, message)
        case MessageCancelled():
            return CallCancelled(key)
        case AttemptOutdated(attempt):
            return AttemptSuperseded(key, attempt)
    return InFlight(key, "?", "waiting", None)  # the deadline came before its first turn in the queue


def finish_plan(
    claim: RunClaim, finishing: FinishRun, effect: StoreEffect | None, deadline: float
) -> Plan[RunFinished]:
    """Keep the outcome and perform the effect in the same step. Raises RunLost if the run has another holder."""
    operation = finishing if effect is None else FinishRunWithEffect(finishing, effect.script, *effect.texts())
    answer = yield from perform(Within(operation, deadline))
    if isinstance(answer, RunFinished):
        return answer
    raise RunLost(claim.name)


@dataclass(frozen=True, slots=True)
class StoreEffect:
    """Lua that runs in the step that keeps a run's outcome, on the same server. It returns the result, as JSON.

    `script` is the body of a function with its own `KEYS` and `ARGV`. It runs once per key, however often the message
    is delivered, and never for a holder that was overtaken. A script does not roll back: check everything before the
    first write, so that a failing effect leaves nothing. On a cluster its keys must be in the slot of the record: put
    `Run.hash_tag` into their names.

    ```python
    StoreEffect("return redis.call('INCRBY', KEYS[1], ARGV[1])", keys=["points:7"], arguments=[10])
    ```
    """

    script: str
    keys: Sequence[str] = field(default=())
    arguments: Sequence[str | int] = field(default=())

    def __post_init__(self) -> None:
        """Check the script, keys and arguments."""
        text: object = self.script
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("an effect needs the text of its Lua")
        for what, found in (("keys", self.keys), ("arguments", self.arguments)):
            if isinstance(found, str) or any(type(one) is bool or not isinstance(one, str | int) for one in found):
                raise InvalidInput(f"the {what} of an effect are a list of texts or whole numbers, not {found!r:.80}")

    def texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys and the arguments as they are sent: of an enumeration's member, the value."""
        return tuple(map(_sent, self.keys)), tuple(map(_sent, self.arguments))


def _sent(value: str | int) -> str:
    return str.__str__(value) if isinstance(value, str) else int.__repr__(value)
