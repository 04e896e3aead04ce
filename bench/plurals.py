"""Numbers with nouns in sentences."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return `1 run` or `2 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
