"""Checks of options that the tortures share. Each error names the option and its value."""

from collections.abc import Iterable

from segmented.errors import InvalidInput


def require_within(option: str, value: float, low: float, high: float) -> None:
    """Raise InvalidInput for a value outside of these bounds, and for NaN."""
    if not low <= value <= high:
        raise InvalidInput(f"{option} {value:.15g} must be between {low:,.15g} and {high:,.15g}")


def require_seed(seed: int) -> None:
    """Raise InvalidInput for a negative seed."""
    if seed < 0:
        raise InvalidInput(f"--seed {seed} must not be negative")


def require_one_of(option: str, value: str, known: Iterable[str]) -> None:
    """Raise InvalidInput for a word that is not known."""
    if value not in known:
        raise InvalidInput(f"{option} {value!r} is not one of {', '.join(map(repr, known))}")
