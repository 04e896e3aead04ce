"""How much the benchmark does. The defaults take some minutes; `--quick` and tests take less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from segmented.errors import InvalidInput

ROUNDS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of everything that is measured."""

    rounds: int = 7
    """In each, every kind of message is worked off once, in random order."""
    singles: int = 1_000
    """Messages with one order, and empty ones, of one round."""
    stored_singles: int = 400
    """The same with the transaction."""
    envelopes: int = 150
    """Messages with a hundred orders."""
    stored_envelopes: int = 50
    latencies: int = 150
    """Orders of an idle shop, of one round and one way of deciding."""
    kills: int = 4
    """By turns of workers whose orders were decided at acceptance, and that decide them."""

    @classmethod
    def for_options(cls, *, quick: bool, rounds: int | None) -> Self:
        """Return what a command line asks for. Raises InvalidInput."""
        sizes = cls(2, 200, 100, 30, 10, 60, 1) if quick else cls()
        if rounds is None:
            return sizes
        if not 1 <= rounds <= ROUNDS_MAX:
            message = f"--rounds {rounds} must be between 1 and {ROUNDS_MAX:,}"
            raise InvalidInput(message)
        return replace(sizes, rounds=rounds)
