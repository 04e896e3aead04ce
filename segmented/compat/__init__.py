"""redis-py's lock interface on our locks, for existing code: `client.lock(name, lock_class=Lock)`.

New code should use `segmented.Lock`, whose leases offer more. docs/how-to/come-from-redis-py.md lists the differences.
"""

from segmented.compat.lock import AsyncLock, Lock
from segmented.compat.terms import async_store_of, store_of

__all__ = ["AsyncLock", "Lock", "async_store_of", "store_of"]
