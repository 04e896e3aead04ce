"""What two sessions do not have in common, besides the code that they compare: named before any figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.granularity.record import SessionLine

PASSING: Final = frozenset({"load_before", "steal_percent", "fdatasync_us", "memory_gib", "at", "started_at"})
"""Read anew by every session, so never equal: their place is the page of the environment."""
SHOWN: Final = 60
"""Letters of a value that are shown."""


def differences(before: SessionLine, after: SessionLine) -> Iterator[str]:
    """Yield what differs, A first, a sentence without its full stop each."""
    if before.is_quick != after.is_quick:
        yield f"profile: {_profile(before)}, {_profile(after)}"
    if before.plan_sha256 != after.plan_sha256:
        yield f"plan: {before.plan_sha256[:12]}, {after.plan_sha256[:12]}"
    first, second = flat(before.environment), flat(after.environment)
    for key in sorted(first.keys() | second.keys()):
        one, other = first.get(key), second.get(key)
        if one != other and not PASSING & set(key.split(".")):
            yield f"{key}: {_short(one)}, {_short(other)}"


def flat(found: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables by their dotted names; lists are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in found.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return leaves


def _profile(session: SessionLine) -> str:
    return "quick" if session.is_quick else "published"


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
