"""A sequencer: a text with the name of a lock, the mode in which it is held, and the generation that holds it.

After Chubby (Burrows, "The Chubby lock service for loosely-coupled distributed systems", 2006, section 2.4). A holder
sends it to a resource together with its request. The resource asks the lock's server whether that generation is still
current, or compares the generation with the newest one it has seen (`FenceGuard`), which needs no server.

Guarantees: the lock of a current sequencer was held in that mode and by that generation when the server answered. Not
guaranteed: that it is still held when the resource acts. Only the resource's own comparison, in one step with the
write, closes that gap; asking the server is for resources that cannot remember a number or want to refuse early. If
another library's client takes the lock's key without a token, it cannot be told apart from our last holder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote, unquote

from segmented.errors import InvalidInput
from segmented.locks.durations import NAME_LENGTH_MAX, checked_name, is_whole
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.protocol import CheckSequencer

if TYPE_CHECKING:
    from segmented.locks.claim import LeaseClaim
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol.sequencer import Mode

TOKEN_MAX: Final = 2**63 - 1
SHOWN_MAX: Final = 80
TEXT: Final = re.compile(
    rf"v1:(?P<mode>exclusive|shared):(?P<name>[\w.~%-]{{1,{12 * NAME_LENGTH_MAX}}}):(?P<token>[1-9]\d{{0,18}})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Sequencer:
    """A lock, a mode and a generation. As a text: `v1:MODE:NAME:TOKEN`, the name percent-encoded."""

    name: str
    mode: Mode
    fencing_token: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", checked_name(self.name))
        object.__setattr__(self, "fencing_token", checked_token(self.fencing_token))
        if self.mode not in {"exclusive", "shared"}:
            raise InvalidInput(f"a sequencer's mode is exclusive or shared, not {self.mode!r}")

    @classmethod
    def of(cls, claim: LeaseClaim, fencing_token: int) -> Sequencer:
        """Return the sequencer of a claim that was granted with a token."""
        return cls(claim.name, cast("Mode", claim.mode), fencing_token)

    @classmethod
    def parse(cls, text: str) -> Sequencer:
        """Parse a text that `lease.sequencer()` returned. Raises InvalidInput for any other."""
        try:
            found = TEXT.fullmatch(text)
        except TypeError:  # bytes or another type
            found = None
        if found is not None:
            sequencer = cls(unquote(found["name"]), cast("Mode", found["mode"]), int(found["token"]))
            if str(sequencer) == text:  # each sequencer has exactly one text
                return sequencer
        shown = repr(text)
        shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
        raise InvalidInput(f"{shown} is not a sequencer: the forms are v1:exclusive:NAME:TOKEN or v1:shared:NAME:TOKEN")

    def __str__(self) -> str:
        return f"v1:{self.mode}:{quote(self.name, safe='')}:{self.fencing_token}"

    def is_current(self, store: Store) -> bool:
        """Return whether, by the lock's server, this generation holds the lock now.

        Raises WrongKind for a semaphore, whose permits each have their own generation.
        """
        return run_sync(self._is_current(), store)

    async def async_is_current(self, store: AsyncStore) -> bool:
        """Return whether, by the lock's server, this generation holds the lock now; see `is_current`."""
        return await run_async(self._is_current(), store)

    def _is_current(self) -> Plan[bool]:
        standing = yield from perform(CheckSequencer(self.name, self.mode, self.fencing_token))
        return standing.is_good


def checked_token(token: int) -> int:
    """Return the token. Raises InvalidInput unless it is a fencing token."""
    if not is_whole(token) or not 1 <= token <= TOKEN_MAX:
        raise InvalidInput(f"{token!r} is not a fencing token: give a whole number of 1 or more")
    return int(token)  # of an enumeration's member, the value
