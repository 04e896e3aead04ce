"""Checks of options that the tortures share. Each error names the option and its value."""

from __future__ import annotations

from segmented.errors import InvalidInput


def require_within(option: str, value: float, low: float, high: float) -> None:
    """Raise InvalidInput for a value outside of these bounds, and for NaN."""
    if not low <= value <= high:
        message = f"{option} {value:.15g} must be between {low:,.15g} and {high:,.15g}"
        raise InvalidInput(message)


def require_seed(seed: int) -> None:
    """Raise InvalidInput for a negative seed."""
    if seed < 0:
        message = f"--seed {seed} must not be negative"
        raise InvalidInput(message)
