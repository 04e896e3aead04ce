"""Differences between two sessions other than the code under comparison; they are listed before any figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.granularity.record import SessionLine

PASSING: Final = frozenset({"load_before", "steal_percent", "fdatasync_us", "memory_gib", "at", "started_at"})
"""Values that every session measures again, so they are never equal and not compared."""
SHOWN: Final = 60
"""Maximum length of a shown value."""


def differences(before: SessionLine, after: SessionLine) -> Iterator[str]:
    """Yield the differences, A first, each as a sentence without its full stop."""
    if before.is_quick != after.is_quick:
        yield f"profile: {_profile(before)}, {_profile(after)}"
    if before.plan_sha256 != after.plan_sha256:
        yield f"plan: {before.plan_sha256[:12]}, {after.plan_sha256[:12]}"
    yield from _differing(before.environment, after.environment)


def _differing(first: dict[str, Any], second: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted((first.keys() | second.keys()) - PASSING):
        one, other, name = first.get(key), second.get(key), f"{prefix}{key}"
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differing(one, other, f"{name}.")
        elif isinstance(one, dict) and other is None:
            yield f"{name}: A alone has it"
        elif isinstance(other, dict) and one is None:
            yield f"{name}: B alone has it"
        elif one != other:
            yield f"{name}: {_short(one)}, {_short(other)}"


def _profile(session: SessionLine) -> str:
    return "quick" if session.is_quick else "published"


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
