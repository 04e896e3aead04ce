"""Answers to the operations on a schedule of periodic tasks, which one beat of many leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BeatRead:
    """The schedule as its server has it."""

    now_ms: int
    """The server's time."""
    version: str
    """Grows with each change of a definition."""
    entries: Mapping[str, str]
    """Definitions that were added at runtime, by name."""
    runs: Mapping[str, str]
    """States by the name of their entry, also of entries that are defined in code."""


@dataclass(frozen=True, slots=True)
class BeatLed:
    """The caller leads."""

    now_ms: int
    version: str
    found: BeatRead | None
    """None if the caller knows this version."""


@dataclass(frozen=True, slots=True)
class BeatSuperseded:
    """A leader with another fencing token is the newest."""


@dataclass(frozen=True, slots=True)
class EntryMoved:
    """The entry has the new state."""


@dataclass(frozen=True, slots=True)
class EntryDiffers:
    """The entry has another state than the caller has read."""

    state: str


@dataclass(frozen=True, slots=True)
class EntryEarly:
    """The slot is not due yet by the server's clock."""

    left_ms: int


@dataclass(frozen=True, slots=True)
class EntryChanged:
    """The definition is kept or removed."""

    was_there: bool


@dataclass(frozen=True, slots=True)
class EntriesFull:
    """No further definition fits."""
