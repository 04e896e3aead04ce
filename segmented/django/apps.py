"""The app `segmented`, the settings of a Django project, `SEGMENTED = {...}`, and the store and gate that they name.

| key | meaning |
| --- | --- |
| `URL` | the Redis server of pools, locks and idempotency keys, such as `redis://localhost:6379/0` |
| `DATABASE` | the alias in `DATABASES` that has the gate's tables; default: `"default"`; None: no gate |
| `NAMESPACE` | separates the idempotency keys of this project from others; default: `"django"` |
| `IDEMPOTENCY` | `WebOptions` for every view; default: None, only views with `@idempotent` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from sqlalchemy import URL

from segmented.dedup.terms import checked_namespace
from segmented.dedup.web.guard import WebOptions
from segmented.errors import InvalidInput
from segmented.orders import Gate
from segmented.orders.mysql import OPTIONS as MYSQL_OPTIONS
from segmented.process import Guard, after_fork_in_child
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import parse_address


class SegmentedConfig(AppConfig):
    """The app `segmented`: checks, a migration of the gate's tables, and a read-only admin."""

    name = "segmented.django"
    label = "segmented"
    verbose_name = "Segmented"

    def ready(self) -> None:
        """Register the checks of the settings, and what closes the gates."""
        checks.register(check)
        connection_created.connect(close_gates)


DEFAULTS: Final[Mapping[str, Any]] = {"URL": "", "DATABASE": "default", "NAMESPACE": "django", "IDEMPOTENCY": None}
EXAMPLE: Final = 'SEGMENTED = {"URL": "redis://localhost:6379/0"}'
SOCKETS: Final = {"postgresql": "host", "mysql": "unix_socket"}
"""The option for a HOST that is a path, by the engine."""
_guard = Guard()
_opened: dict[str, Any] = {}
"""Stores and gates of this process, by URL: a test changes the settings, and Django the name of its database."""


def setting(name: str) -> Any:  # noqa: ANN401  # any setting
    """Return a setting. Raises InvalidInput, naming the cure, if `SEGMENTED` is wrong."""
    found: Any = getattr(settings, "SEGMENTED", None)
    if not isinstance(found, dict):
        raise InvalidInput(f"the settings lack SEGMENTED: add {EXAMPLE}")
    unknown = [str(one) for one in found if one not in DEFAULTS]
    if unknown:
        near = get_close_matches(unknown[0].upper(), DEFAULTS, n=1)
        cure = f"write {near[0]!r}" if near else f"it may have {', '.join(map(repr, DEFAULTS))}"
        raise InvalidInput(f"SEGMENTED has {unknown[0]!r}, which is not a setting: {cure}")
    return found.get(name, DEFAULTS[name])


def store() -> RedisStore:
    """Return the store of `SEGMENTED["URL"]`, opened by the first call in this process.

    Raises InvalidInput for a wrong setting, and StoreUnavailable if the server does not answer.
    """
    found: RedisStore = _opened_by(_url(), RedisStore.from_url)
    return found


def gate() -> Gate:
    """Return the gate on the database `SEGMENTED["DATABASE"]`, opened by the first call in this process.

    It opens connections of its own there. In a test it follows Django to the test database.
    """
    found: Gate = _opened_by(gate_url().render_as_string(hide_password=False), Gate)
    return found


def _opened_by(url: str, make: Callable[[str], Any]) -> Any:  # noqa: ANN401  # a store or a gate
    with _guard.lock:
        if url not in _opened:
            _opened[url] = make(url)
        return _opened[url]


def gate_url() -> URL:
    """Return the address of the gate's database. Raises InvalidInput for one that no gate can use."""
    alias = gate_alias()
    if alias is None:
        raise InvalidInput('SEGMENTED["DATABASE"] is None, so there is no gate: name a database of DATABASES')
    if alias not in settings.DATABASES:
        message = f'SEGMENTED["DATABASE"] is {alias!r}, which DATABASES lacks: name one of {sorted(settings.DATABASES)}'
        raise InvalidInput(message)
    found = connections[alias].settings_dict
    engine, name = str(found["ENGINE"]).rpartition(".")[2], str(found["NAME"] or "")
    if engine == "sqlite3" and name and not name.startswith(("file:", ":")):
        return URL.create("sqlite", database=name)
    if engine in SOCKETS:
        host = str(found["HOST"] or "")
        options = dict(found["OPTIONS"])
        if engine == "mysql":  # its other options are of its own driver
            given = {**options, **{f"ssl_{one}": value for one, value in dict(options.get("ssl") or {}).items()}}
            options = {one: value for one, value in given.items() if one in MYSQL_OPTIONS}
        query = {str(one): str(value) for one, value in options.items() if isinstance(value, str | int)}
        if host.startswith("/"):
            host, query = "", {**query, SOCKETS[engine]: host}
        return URL.create(
            engine,
            found["USER"] or None,
            found["PASSWORD"] or None,
            host or None,
            int(found["PORT"]) if found["PORT"] else None,
            name or None,
            query,
        )
    raise InvalidInput(
        f"the database {alias!r} is {found['ENGINE']} {name!r}, and a gate needs PostgreSQL, MySQL, MariaDB, or "
        'SQLite in a file: name another one in SEGMENTED["DATABASE"], or None for no gate'
    )


def gate_alias() -> str | None:
    """Return the alias of the gate's database; None if the project has no gate."""
    found: str | None = setting("DATABASE")
    return found


def check(**_: object) -> list[checks.CheckMessage]:
    """Return what is wrong with the settings, for `manage.py check`."""
    said: dict[str, checks.CheckMessage] = {}
    for number, wrong in enumerate((_url, _database, _namespace, _idempotency), 1):
        try:
            wrong()
        except InvalidInput as error:
            text, *cure = str(error).split(": ", 1)
            said.setdefault(text, checks.Error(text, hint=cure[0] if cure else None, id=f"segmented.E00{number}"))
    return list(said.values())


def _url() -> str:
    url = setting("URL")
    if not isinstance(url, str) or not url:
        raise InvalidInput(f'SEGMENTED has no "URL" of a Redis server: add it, as in {EXAMPLE}')
    parse_address(url)
    return url


def _database() -> None:
    if gate_alias() is not None:
        gate_url()


def _namespace() -> None:
    checked_namespace(setting("NAMESPACE"))


def _idempotency() -> None:
    found = setting("IDEMPOTENCY")
    if found is not None and not isinstance(found, WebOptions):
        message = f'SEGMENTED["IDEMPOTENCY"] is {found!r:.80}, which is not WebOptions: give WebOptions(scope=...)'
        raise InvalidInput(message)


def close_gates(connection: Any, **_: object) -> None:  # noqa: ANN401  # Django's connection
    """Close the gates when Django connects beside all databases: to drop a test database, which nobody may use."""
    if connection.alias == NO_DB_ALIAS:
        with _guard.lock:
            for url in [url for url, one in _opened.items() if isinstance(one, Gate)]:
                _opened.pop(url).close()


after_fork_in_child(_opened.clear)  # a child opens its own connections and leaves the parent's alone
