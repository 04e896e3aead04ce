"""One lock for the whole stock: the same code with one segment."""

from __future__ import annotations

from typing import ClassVar

from bench.strategies.segment_locks import SegmentLocks


class GlobalLock(SegmentLocks):
    """A pool of one segment."""

    name: ClassVar[str] = "global-lock"
    summary: ClassVar[str] = "one lock for the whole stock: a pool of one segment"
    has_segments: ClassVar[bool] = False

    @property
    def segments(self) -> int:
        """One."""
        return 1
