"""Settings of the Celery app: where records are, and what happens if they cannot be reached. One store per process.

| setting | meaning |
| --- | --- |
| `once_url` | the server of the records, such as `redis://localhost:6379/2`: not the broker's database |
| `once_store` | instead of `once_url`: a store, or a callable that returns one |
| `once_namespace` | separates the app's records from those of other apps; default: the app's name |
| `once_when_down` | `refuse` (the default) or `run`: what a task does if the records cannot be reached |
| `once_off` | True: every call runs, for tests and emergencies; copies of one message are still recognised |
| `once_timeout` | seconds within which a publisher needs the answer of the records' server (default 2) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.terms import checked_namespace
from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.locks.durations import milliseconds
from segmented.plans.store_kinds import is_sync_store, sync_store
from segmented.process import Guard, after_fork_in_child
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from segmented.plans.drivers import Store

WHEN_DOWN: Final = ("refuse", "run")
ANSWER_SECONDS: Final = 2.0
_guard = Guard()
_stores: dict[str, RedisStore] = {}


class OnceSettings:
    """Reads an app's settings, and caches them until they change.

    Celery looks for a setting in several places, by several names. Every task needs three, and in a worker that does
    little else these look-ups were a tenth of the cost of deduplication.
    """

    def __init__(self, app: Celery) -> None:
        """Create an empty cache, since a task is created before its app is configured."""
        self.app = app
        self._read: dict[str, tuple[object, object, Any]] = {}

    def get(self, name: str, check: Callable[[Any], Any] | None = None) -> Any:  # noqa: ANN401  # any setting
        """Return a setting, through `check` when it is read; None if it is not set."""
        conf: Any = self.app.conf
        changed = conf.changes.get(name)
        known = self._read.get(name)
        if known is None or known[0] is not conf or known[1] is not changed:
            found = conf.get(name)
            known = self._read[name] = (conf, changed, found if check is None else check(found))
        return known[2]


def store_of(settings: OnceSettings) -> Store:
    """Return the store of the app's records, opened by the first call in this process."""
    given: Any = settings.get("once_store")
    if given is not None:
        return given if is_sync_store(given) else sync_store(given, "once_store")
    url = settings.get("once_url")
    if not url:
        message = f"the app {settings.app.main!r} has no once_url: set it to the Redis server of the records"
        raise InvalidInput(message)
    with _guard.lock:
        if url not in _stores:
            _stores[url] = _opened(url, timeout_of(settings))
        return _stores[url]


def _opened(url: str, timeout: float) -> RedisStore:
    """Connect.

    Raises InvalidInput for a malformed address, StoreRefused if the server refuses the connection or is unsuitable, and
    StoreUnavailable if it does not answer and may do so later.
    """
    shown = parse_address(url).shown
    try:
        return RedisStore.from_url(url, timeout=timeout)
    except StoreUnavailable as error:
        message = f"the records at {shown} cannot be used now: {error}"
        raise StoreUnavailable(message) from error
    except InvalidInput as error:
        if isinstance(error.__cause__, ValueError | TypeError):
            raise
        message = f"the records at {shown} cannot be used: {error}"
        raise StoreRefused(message) from error


def namespace_of(settings: OnceSettings) -> str:
    """Return the namespace of the app's records."""
    namespace: str = settings.get(
        "once_namespace", lambda found: checked_namespace(found or settings.app.main or "celery")
    )
    return namespace


def runs_when_down(settings: OnceSettings) -> bool:
    """Return whether tasks run and are published if the records cannot be reached. Then a repeat may run as well."""
    found: bool = settings.get("once_when_down", _is_run)
    return found


def _is_run(found: object) -> bool:
    said = found or WHEN_DOWN[0]
    if said not in WHEN_DOWN:
        message = f"once_when_down is {said!r}: give one of {', '.join(WHEN_DOWN)}"
        raise InvalidInput(message)
    return said == "run"


def timeout_of(settings: OnceSettings) -> float:
    """Return how many seconds the records' server may take to answer a publisher. Raises InvalidInput."""
    seconds: float = settings.get("once_timeout", _as_seconds)
    return seconds


def _as_seconds(found: Any) -> float:  # noqa: ANN401  # any setting
    return milliseconds(ANSWER_SECONDS if found is None else found, "once_timeout") / 1_000


def close_stores() -> None:
    """Close the connections that this process opened."""
    with _guard.lock:
        while _stores:
            _stores.popitem()[1].close()


def _forget_parents() -> None:
    # A child of the pool opens its own connections and leaves the parent's alone.
    _stores.clear()


after_fork_in_child(_forget_parents)
