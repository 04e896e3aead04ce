"""Each kind of lock, described for the tests: one file a kind, beside this one.

A file has `USES`, how the kind is held by its operations, for the operator's tests, and `HANDLES`, how its handles are
made and what they offer, for the conformance suite. A new kind joins both by a file.
"""

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from segmented.models.locks import HolderMode
from segmented.protocol import Operation
from tests.support.lock_kinds import LOCK_KINDS, Kind

Make = Callable[..., Any]
"""Makes a handle of a store, a name and options."""
Steps = Callable[[Any], Sequence[Operation[Any]]]
"""Says by which operations something is done to a lease behind its holder's back."""
Step = Callable[[str, str], Operation[Any]]
"""Creates an operation from a name and a holder id."""

EVERY_LEASE: Final = frozenset({"ttl", "with", "renewal", "background", "telling", "listening"})
"""Features that nearly all kinds get from the shell they share."""
LAPSE_MS: Final = 1
LONG_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Use:
    """How one kind is acquired, renewed and released by its operations."""

    kind: str
    mode: HolderMode
    acquire: Step
    renew: Step
    release: Step
    names_owner: bool = False
    """Whether an operator sees its owner, and no holder id."""

    def __str__(self) -> str:
        return f"{self.kind}-{self.mode}"

    @property
    def record(self) -> Kind:
        """The record of the kind."""
        return next(kind for kind in LOCK_KINDS if kind.name == self.kind)


def _lapsing(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # the lease of any kind
    return [hold.claim.renewing(LAPSE_MS)]


def _ending(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # as above
    return [hold.claim.releasing()]


def _token(hold: Any) -> int:  # noqa: ANN401  # as above
    token: int = hold.fencing_token
    return token


HERD: Final = {"D16": "a release wakes a waiter of each process"}
"""The hole of the kind without a line of processes."""


@dataclass(frozen=True, slots=True)
class Handles:
    """How the handles of one kind are made, and what they offer."""

    title: str
    sync: Make
    asyncio: Make
    offers: frozenset[str]
    rival_sync: Make | None = None
    rival_asyncio: Make | None = None
    """Makes a handle that excludes it, where others of its own kind do not."""
    lapsing: Steps = _lapsing
    """End a lease as its time would."""
    ending: Steps = _ending
    """End it at once."""
    stores: tuple[str, ...] = ("redis",)
    """Those that share the plans of the plain lock are run on Redis only: the memory store differs in no row."""
    servers: int = 1
    names: int = 1
    """How many names a handle locks at once."""
    token: Callable[[Any], int] = _token
    """Its fencing token."""
    tells_rest: bool = True
    """Whether its store can report that a waiter has come to rest."""
    key_lapses: bool = True
    """Whether the server ends its key by itself."""
    holes: dict[str, str] = field(default_factory=dict)
    """Rows that it fails, with the reason; the suite checks that it does."""


def uses() -> list[Use]:
    """Return how each kind is held by its operations."""
    return _gathered("USES")


def handles() -> list[Handles]:
    """Return how the handles of each kind are made."""
    return _gathered("HANDLES")


def _gathered(what: str) -> list[Any]:
    names = sorted((module.name for module in pkgutil.iter_modules(__path__)), key=lambda name: (name != "lock", name))
    return [one for name in names for one in getattr(import_module(f"{__name__}.{name}"), what, ())]
