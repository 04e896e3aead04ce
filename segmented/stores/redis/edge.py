"""Client settings, the translation of the driver's errors into ours, and the checks on connecting.

A `maxmemory-policy` other than `noeviction` deletes keys when memory is full. A lock, a cache or a record of `Once`
that is deleted is one that ended early: two holders at most, and a fencing token tells them apart. A deleted segment of
a pool is stock that is gone. So there is a warning, and no pools unless the user allows them (`Eviction`). Hosted
servers begin with `volatile-lru`.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)

from segmented.errors import InvalidInput, StoreError, StoreRefused, StoreUnavailable, WrongKind
from segmented.masking import masked
from segmented.protocol.wire import UNKNOWN_COMMAND, Reply, text
from segmented.stores.redis.addresses import ENCODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


CONNECT_TIMEOUT: Final = 2.0
SOCKET_TIMEOUT: Final = 5.0
CONNECTIONS_MAX: Final = 100
"""Enough for a thousand tasks, each of which uses a connection for one round trip."""
OTHER_CONNECTIONS: Final = 8
"""Connections for the listener and for direct users of the store's client."""
NO_CLUSTER: Final = "Cluster mode is not enabled"
"""Part of redis-py's message about a server that is not a node of a cluster."""
SENTINEL_REFUSED: Final = "a Sentinel refused its password"
AWAY: Final = (RedisConnectionError, RedisTimeoutError, ClusterDownError, TryAgainError, OSError)
TRIES: Final = 2
"""Two, because an idle connection may be broken. Every operation is safe to run twice; more would exceed deadlines."""
NO_INFO: Final = "the server at {} answers INFO with something else: is it a proxy? Name the server itself"
MAJOR_MIN: Final = 7


def client_options(retry_class: Any) -> dict[str, Any]:  # noqa: ANN401  # redis-py has a Retry class for sync and one for async
    """Return the settings of the connection pools that we create; the link does the retries."""
    return {
        "max_connections": CONNECTIONS_MAX + OTHER_CONNECTIONS,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": SOCKET_TIMEOUT,
        "retry": retry_class(NoBackoff(), TRIES - 1),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError],
    }


def _meant(error: Exception) -> Exception:
    """Return the server's refusal, which redis-py's asyncio client wraps in a ConnectionError on connecting."""
    cause = error.__cause__
    return cause if type(error) is RedisConnectionError and isinstance(cause, RedisError) else error


def _words(error: Exception) -> str:
    """Return the driver's message; of a Sentinel client's message only the readable part."""
    found, details, _ = str(error).partition(" : <redis.")
    return f"{found}; {SENTINEL_REFUSED}" if details and "AuthenticationError" in str(error) else found


def _cure(where: str, error: Exception, *, is_first: bool) -> str:
    """Return what to try if TLS and no TLS may have met, which neither side says; "" otherwise."""
    scheme, is_tls = where.partition(":")[0], where.startswith("rediss")
    if is_tls and isinstance(error, RedisTimeoutError) and "connecting" in str(error):
        return f"; if the server speaks no TLS, begin the URL with {scheme.replace('rediss', 'redis', 1)}://"
    is_cut = "reset by peer" in str(error) or "closed by server" in str(error)
    if is_first and is_cut and scheme.startswith("redis") and not is_tls:
        return f"; if the server asks for TLS, begin the URL with {scheme.replace('redis', 'rediss', 1)}://"
    return ""


def our_error(raised: Exception, where: str) -> StoreError:
    """Translate the driver's error into one of ours, in one sentence."""
    match _meant(raised):
        case AuthenticationError() as error:
            return StoreRefused(f"{where} refused the password: {error}")
        case RedisConnectionError() | RedisTimeoutError() | OSError() as error:
            words = _words(error) or "no reply in time"
            return StoreUnavailable(f"{where} did not answer: {words}{_cure(where, error, is_first=False)}")
        case AskError() as error:  # MovedError is a subclass
            return StoreUnavailable(f"{where} has the key on another node of its cluster: {error}")
        case ReadOnlyError() | ClusterDownError() | TryAgainError() as error:  # MASTERDOWN is also a ClusterDownError
            return StoreUnavailable(f"{where} has no master that can do it now: {error}")
        case error if "WRONGTYPE" in str(error):
            return WrongKind(
                f"the key on {where} holds another type: another kind of lock, or other data, has its name"
            )
        case error:
            return StoreRefused(f"{where} refused the operation: {error}")


class Translated:
    """A context that translates the driver's errors into ours. A class, for speed: each operation enters one."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        """Create the checks; `where` names the server in errors."""
        self._where = where

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise our error instead of the driver's."""
        if error is not None and isinstance(error, (RedisError, OSError)):
            raise our_error(error, self._where) from error


@contextmanager
def guarded(url: str) -> Iterator[None]:
    """Translate an error at the first contact into one sentence.

    It is StoreUnavailable if no server with its data loaded answered, otherwise InvalidInput.
    """
    try:
        yield
    except InvalidInput:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        cause = error.__cause__ if isinstance(error, RedisClusterException) else None  # the last node's error
        message = _first_contact(masked(url), _meant(cause if isinstance(cause, Exception) else error))
        raise (StoreUnavailable if _is_away(error, message) else InvalidInput)(message) from error
    except AttributeError as error:  # the driver takes any answer to its greeting for what it expects
        raise InvalidInput(NO_INFO.format(masked(url))) from error
    except (ValueError, TypeError) as error:  # TypeError: the driver has no such option for this kind of URL
        named = {name for name, _ in parse_qsl(url.partition("?")[2]) if repr(name) in str(error)}
        # The driver's message may quote a part of the password, if there is one.
        words = str(error) if masked(url) == url else ENCODE
        detail = f"the driver does not accept the option {min(named)} here" if named else words
        raise InvalidInput(f"{masked(url)!r} is not a Redis URL: {detail}") from error


def _is_away(error: Exception, message: str) -> bool:
    """Return whether no server with its data loaded answered; a refusal or a wrong kind of server does not count."""
    cause: BaseException = error
    if isinstance(cause, RedisClusterException) or type(cause) is RedisConnectionError:
        inner = cause.__cause__
        cause = inner if isinstance(inner, RedisError | OSError) else cause  # wrapped by clients of several servers
    if isinstance(cause, RedisClusterException):
        return NO_CLUSTER not in str(cause)  # otherwise no node was reached
    is_refusal = isinstance(cause, AuthenticationError) or SENTINEL_REFUSED in message
    return isinstance(cause, AWAY) and not is_refusal


def is_refusal(error: StoreError) -> bool:
    """Return whether the server or a Sentinel refused us, so that a retry cannot help."""
    return isinstance(error, StoreRefused) or SENTINEL_REFUSED in str(error)


def is_password_refused(error: StoreError) -> bool:
    """Return whether the server refused the password, or a missing one."""
    cause = error.__cause__
    return isinstance(cause, Exception) and isinstance(_meant(cause), AuthenticationError)


def _first_contact(server: str, error: Exception) -> str:
    match error:
        case AuthenticationError():
            if "***" not in server:
                return f"{server} asks for a password, and the URL has none: use one as `segmented server` prints it"
            return f"{server} refused the password or account of the URL"
        case ResponseError() if (unknown := UNKNOWN_COMMAND.match(str(error))) is not None:
            cure = ": add protocol=2 to the URL" if unknown[1] == "HELLO" else ", which is needed to check it"
            return f"the server at {server} has no {unknown[1]}{cure}"
        case RedisConnectionError() | RedisTimeoutError() | OSError():
            return f"no server answers at {server}: {_words(error)}{_cure(server, error, is_first=True)}"
    return f"the server at {server} is not usable: {error}"


def check_server(where: str, found: Mapping[str, Reply], *, is_cluster: bool, eviction: Eviction) -> None:
    """Refuse a server whose INFO shows that it is too old, or not what the address says; note whether it may evict."""
    mode = text(found.get("server_mode") or found.get("redis_mode") or "standalone")  # Valkey's name, and Redis's
    if text(found.get("cluster_enabled", "0")) == "1":  # a hosted service may report this and hide its mode
        mode = "cluster"
    role = text(found.get("role", "master"))
    if mode == "sentinel":
        raise InvalidInput(f"the server at {where} is a Sentinel: give redis+sentinel://HOST:PORT/SERVICE")
    if (mode == "cluster") is not is_cluster:
        message = f"the server at {where} is {'not a' if is_cluster else 'a'} node of a cluster"
        raise InvalidInput(message + ("" if is_cluster else ": give redis+cluster://HOST:PORT"))
    if role != "master":
        message = f"the server at {where} is a replica, which takes no locks and no stock: give its master's address"
        raise InvalidInput(message)
    if "redis_version" not in found:
        raise InvalidInput(NO_INFO.format(where))
    version = text(found["redis_version"])
    major = version.partition(".")[0]
    if not major.isdecimal() or int(major) < MAJOR_MIN:
        raise InvalidInput(f"the server at {where} speaks Redis {version}; 7.0 or newer is needed (Valkey: any)")
    eviction.note(where, text(found.get("maxmemory_policy", "")))


LOGGER: Final = logging.getLogger("segmented.stores")
CURE: Final = "so it takes no pool: set noeviction, or, if its memory cannot fill up, add allow_eviction=yes to the URL"
EARLY: Final = "so a lock or a record may end early: set noeviction"


class Eviction:
    """The eviction policies that one store has found at its first contact with each server."""

    def __init__(self, *, is_allowed: bool = False) -> None:
        """Create a state in which nothing is known; `is_allowed` says that the user knows, and that pools may be kept.

        Raises InvalidInput if that is not a bool.
        """
        if type(is_allowed) is not bool:
            raise InvalidInput(f"allow_eviction is True or False, not {is_allowed!r}")
        self._is_allowed = is_allowed
        self.warning = ""
        """The sentence for users of the server, or an empty text."""
        self.refusal = ""
        """The reason why the store takes no pools, or an empty text."""
        self._has_warned = False

    def note(self, where: str, policy: str) -> None:
        """Note a server's policy, which is empty if the server hides it."""
        if policy == "noeviction" or self._is_allowed:
            return
        server = f"the server at {where}"
        if policy:
            said = f"{server} has maxmemory-policy {policy}, which may evict locks and stock"
            self.refusal, self.warning = f"{said}, {CURE}", f"{said}, {EARLY}"
        elif not self.warning:
            self.warning = f"{server} does not report its maxmemory-policy: make sure that it is noeviction"

    def check(self, operation: object) -> None:
        """Warn once a store; raise InvalidInput for an operation on a pool, if the store takes none."""
        if self.refusal and hasattr(type(operation), "sku"):
            raise InvalidInput(self.refusal)
        if not self._has_warned:
            self._has_warned = True
            LOGGER.warning("%s", self.warning)
