"""The sizes of the benchmark. The defaults take some minutes; `--quick` and tests take less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from segmented.errors import InvalidInput

ROUNDS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 7
    """Rounds; each runs every kind of message once, in random order."""
    singles: int = 1_000
    """Messages with one order, and empty messages, per round."""
    stored_singles: int = 400
    """The same with the order database."""
    envelopes: int = 150
    """Messages with a hundred orders, per round."""
    stored_envelopes: int = 50
    latencies: int = 150
    """Orders for the idle latency, per round and way of deciding."""
    kills: int = 4
    """Kills, alternating between orders decided at acceptance and in the worker."""

    @classmethod
    def for_options(cls, *, quick: bool, rounds: int | None) -> Self:
        """Return the sizes for command-line options. Raises InvalidInput."""
        sizes = cls(2, 200, 100, 30, 10, 60, 1) if quick else cls()
        if rounds is None:
            return sizes
        if not 1 <= rounds <= ROUNDS_MAX:
            message = f"--rounds {rounds} must be between 1 and {ROUNDS_MAX:,}"
            raise InvalidInput(message)
        return replace(sizes, rounds=rounds)
