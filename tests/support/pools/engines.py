"""The engine below a gate, for statements of an administrator or of another program."""

from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

from segmented.orders import Gate

ENGINES: Final[WeakKeyDictionary[Gate, Engine]] = WeakKeyDictionary()


def gate_on(engine: Engine) -> Gate:
    """Return a gate whose engine `engine_of` returns."""
    gate = Gate(engine)
    ENGINES[gate] = engine
    return gate


def engine_of(gate: Gate) -> Engine:
    """Return the engine that `gate_on` got."""
    return ENGINES[gate]
