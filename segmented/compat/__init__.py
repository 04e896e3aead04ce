"""redis-py's lock interface on our locks, for existing code: `client.lock(name, lock_class=Lock)`.

New code should use `segmented.Lock`, whose leases offer more. docs/how-to/come-from-redis-py.md lists the differences.
"""

from segmented.compat.async_lock import AsyncLock
from segmented.compat.lock import Lock
from segmented.compat.stores import async_store_of, store_of

__all__ = ["AsyncLock", "Lock", "async_store_of", "store_of"]
