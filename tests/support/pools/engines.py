"""The engine below a gate, for statements of an administrator or of another program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from segmented.orders import Gate

if TYPE_CHECKING:
    from sqlalchemy import Engine

ENGINES: Final[WeakKeyDictionary[Gate, Engine]] = WeakKeyDictionary()


def gate_on(engine: Engine) -> Gate:
    """Return a gate whose engine `engine_of` returns."""
    gate = Gate(engine)
    ENGINES[gate] = engine
    return gate


def engine_of(gate: Gate) -> Engine:
    """Return the engine that `gate_on` got."""
    return ENGINES[gate]
