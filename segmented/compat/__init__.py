"""redis-py's own lock interface over ours: `client.lock(name, lock_class=Lock)`, for code that uses it already.

New code takes `segmented.Lock`, whose leases tell more. docs/how-to/come-from-redis-py.md lists what is different.
"""

from segmented.compat.async_lock import AsyncLock
from segmented.compat.lock import Lock
from segmented.compat.stores import async_store_of, store_of

__all__ = ["AsyncLock", "Lock", "async_store_of", "store_of"]
