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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from celery.signals import worker_process_shutdown, worker_shutdown

from segmented.dedup.terms import checked_namespace
from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.locks.durations import milliseconds
from segmented.plans.store_kinds import is_sync_store, sync_store
from segmented.process import Guard, after_fork_in_child
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import parse_address

if TYPE_CHECKING:
    from celery import Celery

    from segmented.plans.drivers import Store

NAMES: Final = ("once_url", "once_store", "once_namespace", "once_when_down", "once_off", "once_timeout")
WHEN_DOWN: Final = ("refuse", "run")
ANSWER_SECONDS: Final = 2.0
_guard = Guard()
_stores: dict[str, RedisStore] = {}


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings of an app, checked."""

    app_name: str
    given: Any
    """The setting `once_store`."""
    url: str
    namespace: str
    runs_when_down: bool
    """Whether tasks run and are published if the records cannot be reached. Then a repeat may run as well."""
    is_off: bool
    timeout: float
    """Seconds that the records' server may take to answer a publisher."""

    @property
    def store(self) -> Store:
        """Return the store of the app's records, opened by the first call in this process."""
        if self.given is not None:
            return self.given if is_sync_store(self.given) else sync_store(self.given, "once_store")
        found = _stores.get(self.url)
        return self._opened() if found is None else found

    def _opened(self) -> Store:
        if not self.url:
            raise InvalidInput(f"the app {self.app_name!r} has no once_url: set it to the Redis server of the records")
        with _guard.lock:
            if self.url not in _stores:
                _stores[self.url] = _opened(self.url, self.timeout)
            return _stores[self.url]


class OnceSettings:
    """Reads an app's settings, and caches them until one of them changes.

    Celery looks for a setting in several places, by several names. Every task needs most of them, and these look-ups
    were a tenth of the cost of deduplication.
    """

    def __init__(self, app: Celery) -> None:
        """Create an empty cache, since a task is created before its app is configured."""
        self.app = app
        self._read: tuple[object, list[object], Configured] | None = None

    def get(self) -> Configured:
        """Return the settings as they are now. Raises InvalidInput for an unusable one."""
        conf: Any = self.app.conf
        changes = conf.changes
        changed = [changes.get(name) for name in NAMES]
        known = self._read
        if known is None or known[0] is not conf or known[1] != changed:
            known = self._read = (conf, changed, self._configured(conf))
        return known[2]

    def _configured(self, conf: Any) -> Configured:  # noqa: ANN401  # Celery's settings
        when_down, timeout = conf.get("once_when_down") or WHEN_DOWN[0], conf.get("once_timeout")
        if when_down not in WHEN_DOWN:
            raise InvalidInput(f"once_when_down is {when_down!r}: give one of {', '.join(WHEN_DOWN)}")
        return Configured(
            app_name=self.app.main,
            given=conf.get("once_store"),
            url=conf.get("once_url") or "",
            namespace=checked_namespace(conf.get("once_namespace") or self.app.main or "celery"),
            runs_when_down=when_down == "run",
            is_off=bool(conf.get("once_off")),
            timeout=milliseconds(ANSWER_SECONDS if timeout is None else timeout, "once_timeout") / 1_000,
        )


def _opened(url: str, timeout: float) -> RedisStore:
    """Connect.

    Raises InvalidInput for a malformed address, StoreRefused if the server refuses the connection or is unsuitable, and
    StoreUnavailable if it does not answer and may do so later.
    """
    shown = parse_address(url).shown
    try:
        return RedisStore.from_url(url, timeout=timeout)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"the records at {shown} cannot be used now: {error}") from error
    except InvalidInput as error:
        if isinstance(error.__cause__, ValueError | TypeError):
            raise
        raise StoreRefused(f"the records at {shown} cannot be used: {error}") from error


@worker_process_shutdown.connect
@worker_shutdown.connect
def close_stores(**_: object) -> None:
    """Close the connections that this process opened, at the end of a worker or of its pool's child."""
    with _guard.lock:
        while _stores:
            _stores.popitem()[1].close()


after_fork_in_child(_stores.clear)  # a child opens its own connections and leaves the parent's alone
