"""The profile of a pool: where a change must be before the pool acknowledges it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from segmented.errors import InvalidInput
from segmented.models.ids import shortened

REPLICAS_MAX: Final = 100
WITHIN_MS_MAX: Final = 60_000
DEFAULT_WITHIN_MS: Final = 1_000
SPELLING: Final = re.compile(r"(memory|database|fsync|replicated:([1-9][0-9]{0,2}))(?:/([1-9][0-9]{0,4})ms)?")


@dataclass(frozen=True, slots=True)
class Profile:
    """When a pool acknowledges a change; its text is what the pool stores and every process reads.

    | text | acknowledged when |
    | --- | --- |
    | `memory` | the server has changed its memory |
    | `replicated:2` | two replicas have the change as well |
    | `fsync` | the change is on the server's disk |
    | `database` | the order database has committed; only in a gated pool |

    `replicated:2/500ms` and `fsync/500ms` wait for up to that time instead of the default.
    """

    kind: Literal["memory", "replicated", "fsync", "database"]
    replicas: int = 0
    within_ms: int = 0
    """Milliseconds to wait for the acknowledgements; 0 for a profile that does not wait."""

    @property
    def waits(self) -> bool:
        """Return whether the store waits for replicas or the disk after a change."""
        return self.within_ms > 0

    @property
    def seconds(self) -> float:
        """Seconds to wait for the acknowledgements."""
        return self.within_ms / 1000

    @property
    def wanted(self) -> int:
        """How many acknowledgements a change needs."""
        return self.replicas if self.kind == "replicated" else int(self.waits)

    def __str__(self) -> str:
        """Return the text that `parse_profile` reads; without the default time."""
        name = f"replicated:{self.replicas}" if self.kind == "replicated" else self.kind
        return f"{name}/{self.within_ms}ms" if self.within_ms != _default_ms(self.kind) else name


MEMORY: Final = Profile("memory")
DATABASE: Final = Profile("database")


def parse_profile(text: object) -> Profile:
    """Read the text of a profile. Raises InvalidInput."""
    found = SPELLING.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(_unknown(text))
    kind = "replicated" if found[2] else found[1]
    replicas, default_ms = int(found[2] or 0), _default_ms(kind)
    within_ms = int(found[3] or default_ms)
    if replicas > REPLICAS_MAX or within_ms > WITHIN_MS_MAX or (found[3] and not default_ms):
        raise InvalidInput(_unknown(text))
    return Profile(kind, replicas, within_ms)  # type: ignore[arg-type]  # one of the four


def is_profile(text: str) -> bool:
    """Return whether a pool could have stored this text: the one form that `Profile` has for each profile."""
    try:
        return str(parse_profile(text)) == text
    except InvalidInput:
        return False


def pool_profile(sku: str, text: str | None, *, gated: bool) -> Profile:
    """Return the profile that a pool is opened with. Raises InvalidInput if it does not fit the pool."""
    if text is None:
        return DATABASE if gated else MEMORY
    profile = parse_profile(text)
    if profile == DATABASE and not gated:
        raise InvalidInput(f"profile 'database' needs an order database; open it with Pool(store, {sku!r}, gate=gate)")
    if profile == MEMORY and gated:
        message = f"profile 'memory' is for a pool without order database, and {sku!r} has one; leave the profile out"
        raise InvalidInput(message)
    return profile


def _default_ms(kind: str) -> int:
    return DEFAULT_WITHIN_MS if kind in {"replicated", "fsync"} else 0


def _unknown(text: object) -> str:
    return (
        f"profile {shortened(text)} is not known; give memory, replicated:N with 1 to {REPLICAS_MAX} replicas, fsync "
        f"or database; replicated:N and fsync may say how long to wait, up to {WITHIN_MS_MAX} ms, as in fsync/500ms"
    )
