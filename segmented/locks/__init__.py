"""The locks, one a file."""

from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lock import AsyncLock, Lock

__all__ = ["AsyncLease", "AsyncLock", "Lease", "Lock"]
