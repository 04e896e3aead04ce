"""Settings of a Celery app whose periodic tasks one beat of many sends.

| setting | meaning |
| --- | --- |
| `beat_url` | the Redis server of the schedule; default: `once_url` |
| `beat_store` | instead of `beat_url`: a store, or a callable that returns one |
| `beat_namespace` | separates the app's schedule from those of other apps; default: the app's name |
| `beat_ttl` | seconds after which a beat that died is replaced (default 15) |
| `beat_delivery` | of a slot whose beat dies while it sends it: `at_least_once` (default) or `at_most_once` |
| `beat_catch_up` | seconds by which a slot may be late; later ones are skipped; default: no limit |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.terms import checked_namespace
from segmented.errors import InvalidInput
from segmented.locks.durations import milliseconds
from segmented.plans.store_kinds import is_sync_store, sync_store
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import parse_address

if TYPE_CHECKING:
    from celery import Celery

    from segmented.plans.drivers import Store

DELIVERIES: Final = ("at_least_once", "at_most_once")
DEFAULT_TTL: Final = 15.0


@dataclass(frozen=True, slots=True)
class BeatSettings:
    """The settings of an app for its schedule."""

    namespace: str
    shown: str
    """Where the schedule is, without a password."""
    ttl: float
    is_at_most_once: bool
    catch_up_ms: int | None


def settings_of(app: Celery) -> BeatSettings:
    """Return the settings. Raises InvalidInput for those that make no sense."""
    conf: Any = app.conf
    delivery = conf.get("beat_delivery") or DELIVERIES[0]
    if delivery not in DELIVERIES:
        raise InvalidInput(f"beat_delivery is {delivery!r}: give one of {', '.join(DELIVERIES)}")
    ttl, late = conf.get("beat_ttl"), conf.get("beat_catch_up")
    namespace: str = checked_namespace(conf.get("beat_namespace") or app.main or "celery")
    return BeatSettings(
        namespace=namespace,
        shown="a store of the program" if conf.get("beat_store") is not None else parse_address(_url(app)).shown,
        ttl=milliseconds(DEFAULT_TTL if ttl is None else ttl, "beat_ttl") / 1_000,
        is_at_most_once=delivery == DELIVERIES[1],
        catch_up_ms=None if late is None else milliseconds(late, "beat_catch_up"),
    )


def open_store(app: Celery) -> Store:
    """Return the store of the app's schedule. Raises InvalidInput for an address that makes no sense."""
    given: Any = app.conf.get("beat_store")
    if given is not None:
        return given if is_sync_store(given) else sync_store(given, "beat_store")
    return RedisStore.from_url(_url(app))


def _url(app: Celery) -> str:
    conf: Any = app.conf
    url: str | None = conf.get("beat_url") or conf.get("once_url")
    if not url:
        raise InvalidInput(f"the app {app.main!r} has no beat_url: set it to the Redis server of the schedule")
    return url
