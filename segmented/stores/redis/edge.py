"""The edge: client settings, the one place where the driver's errors become ours, and the guard at connect."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError as RedisConnectionError,
    NoPermissionError,
    RedisError,
    TimeoutError as RedisTimeoutError,
)

from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.stores.redis.wire import Reply, text

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT: Final = 2.0
SOCKET_TIMEOUT: Final = 5.0
CONNECTIONS_MAX: Final = 100
"""A thousand tasks take turns on these, each for one round trip."""
RETRIES: Final = 1
"""One: a pooled connection may have died unseen. Every operation is safe to run twice; more would outlive deadlines."""
MAJOR_MIN: Final = 7
PASSWORD_OPTION: Final = re.compile(r"(?<=[?&]password=)[^&]*")


def client_options(retry_class: Any) -> dict[str, Any]:  # noqa: ANN401  # redis-py has one Retry class a colour
    """Return the settings of the connection pools we make ourselves: they wait for a connection, up to `timeout`."""
    return {
        "max_connections": CONNECTIONS_MAX,
        "timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": SOCKET_TIMEOUT,
        "retry": retry_class(NoBackoff(), RETRIES),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError],
    }


def shown(url: str) -> str:
    """Return the URL without its password, also if it is no valid URL or the password stands in its query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    account, at, host = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    named = f"{user}:***{at}{host}" if colon else rest
    return f"{scheme}{separator}{PASSWORD_OPTION.sub('***', named)}"


def _meant(error: Exception) -> Exception:
    """Return the server's own refusal, which redis-py's asyncio client wraps into a ConnectionError as it connects."""
    cause = error.__cause__
    return cause if type(error) is RedisConnectionError and isinstance(cause, RedisError) else error


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except (RedisError, OSError) as raised:
        match _meant(raised):
            case AuthenticationError() as error:
                message = f"{where} refused the password: {error}"
                raise StoreRefused(message) from raised
            case RedisConnectionError() | RedisTimeoutError() | OSError() as error:
                message = f"{where} did not answer: {error}"
                raise StoreUnavailable(message) from raised
            case error:
                message = f"{where} refused the operation: {error}"
                raise StoreRefused(message) from raised


@contextmanager
def guarded(url: str) -> Iterator[None]:
    """Turn what goes wrong at the first contact into one sentence of bad input."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise InvalidInput(_first_contact(shown(url), _meant(error))) from error
    except (ValueError, TypeError) as error:  # TypeError: an option that the driver does not know
        detail = str(error)
        if isinstance(error, ValueError) and shown(url) != url:  # it may quote a piece of the password
            detail = "in a password, / ? # and @ must be percent-encoded"
        message = f"{shown(url)!r} is not a Redis URL: {detail}"
        raise InvalidInput(message) from error


def _first_contact(server: str, error: Exception) -> str:
    match error:
        case AuthenticationError():
            return f"{server} refused the password or account of the URL"
        case NoPermissionError():
            return f"the account of {server} may not run INFO, which is needed to check the server: {error}"
        case RedisConnectionError() | RedisTimeoutError() | OSError():
            return f"no server answers at {server}: {error}"
    return f"the server at {server} is not usable: {error}"


def check_server(url: str, server: dict[str, Reply], memory: dict[str, Reply]) -> None:
    """Refuse a server that could lose locks and stock: one that evicts, or is too old for the scripts."""
    policy = text(memory.get("maxmemory_policy", "unknown"))
    if policy != "noeviction":
        message = (
            f"the server at {shown(url)} has maxmemory-policy {policy}, which may evict locks and stock; set noeviction"
        )
        raise InvalidInput(message)
    version = text(server.get("redis_version", "0"))
    if int(version.partition(".")[0]) < MAJOR_MIN:
        message = f"the server at {shown(url)} speaks Redis {version}; 7.0 or newer is needed (Valkey: any)"
        raise InvalidInput(message)
