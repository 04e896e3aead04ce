"""Public helpers for tests: a clock that tests advance."""

from segmented.clock import ManualClock

__all__ = ["ManualClock"]
