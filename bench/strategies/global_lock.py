"""One lock for the whole stock: the very same code with one segment."""

from __future__ import annotations

from typing import ClassVar

from bench.strategies.segment_locks import SegmentLocks


class GlobalLock(SegmentLocks):
    """A pool of one segment."""

    name: ClassVar[str] = "global-lock"

    @property
    def segments(self) -> int:
        """One."""
        return 1
