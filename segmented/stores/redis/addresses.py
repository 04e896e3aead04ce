"""Parse the URL of one server, of a master behind Sentinels, or of a cluster. Pure: this module does not connect.

| URL | names |
| --- | --- |
| `redis://[USER:PASSWORD@]HOST:PORT/DB`, `unix://PATH?db=DB` | one server, as in redis-py |
| `redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/SERVICE[/DB]` | the master that these Sentinels name |
| `redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT` | the cluster that these nodes belong to |

`rediss` in place of `redis` asks for TLS on every connection. User and password are those of the data servers;
Sentinels that ask for some too get them as the options `sentinel_username` and `sentinel_password`.

Options follow after `?`: those of redis-py that are a text, a number, or yes or no, as redis-py reads them. Others,
such as `retry` or `credential_provider`, are objects in redis-py: a client of one's own can have them, and a store
takes that client. redis-py reads a URL with any option whatever, and fails later, so all are checked here.
"""

from __future__ import annotations

import codecs
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode

from segmented.errors import InvalidInput
from segmented.masking import HOST, is_readable, masked, unknown

SENTINEL_PORT: Final = 26_379
CLUSTER_PORT: Final = 6_379
PORT_MAX: Final = 65_535
SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""The characters that Sentinel's documentation allows."""
AUTHORITY: Final = re.compile(r"[^/?#]*")
DATABASE: Final = re.compile(r"/?|/[0-9]+")
KNOWN: Final = (
    "it begins with redis://, rediss:// or unix:// for one server, with redis+sentinel://HOST:PORT/SERVICE for the "
    "master that Sentinels name, or with redis+cluster://HOST:PORT for a cluster"
)
ENCODE: Final = "in a password, / ? # and @ must be percent-encoded"
NumberT = TypeVar("NumberT", int, float)
PROBE: Final = "PING"
PROTOCOLS: Final = ("2", "3")
CERTIFICATES: Final = ("none", "optional", "required")
TLS_VERSIONS: Final = tuple(str(int(version)) for version in ssl.TLSVersion)
SENTINEL: Final = frozenset({"sentinel_username", "sentinel_password"})
TLS: Final = "ssl_"
OWN: Final = "allow_eviction"
"""The one option that is ours."""
YES: Final = "yes"
TEXTS: Final = frozenset(
    {
        *("username", "password", "client_name", "lib_name", "lib_version"),
        *("decode_responses", "legacy_responses", "retry_on_timeout", "socket_keepalive"),
        *("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_password", "ssl_ciphers"),
        *("ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled", "ssl_ocsp_expected_cert"),
        *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
    }
)


class Deployment(Enum):
    """The kind of deployment that an address names."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Host(NamedTuple):
    """Host name and port of one server."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL; its `repr` contains no passwords."""

    deployment: Deployment
    shown: str
    """The given URL, without passwords."""
    node_url: str = field(repr=False)
    """The URL of one server (the first host of several), with account and options, as redis-py reads it."""
    hosts: tuple[Host, ...] = ()
    """Sentinels, or nodes of the cluster; empty for one server."""
    service: str = ""
    """The name under which the Sentinels watch the master."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    allows_eviction: bool = False
    """Whether the URL says that pools may be kept on a server that may evict keys."""


def parse_address(url: str) -> Address:
    """Parse a URL; raises InvalidInput with one sentence without passwords."""
    if not isinstance(url, str):
        raise InvalidInput(f"a Redis URL is a text such as redis://HOST:PORT, not {type(url).__name__}")
    scheme, _, rest = url.partition("://")
    security, plus, kind = scheme.partition("+")
    if not plus:
        _check_single(url, scheme, rest)
        _check_readable(url)
        node_url, allows_eviction = _without_own(url)
        return Address(Deployment.SINGLE, masked(url), node_url, allows_eviction=allows_eviction)
    if security not in {"redis", "rediss"} or kind not in {"sentinel", "cluster"}:
        raise _refusal(url, KNOWN)
    authority = AUTHORITY.match(rest)[0]  # type: ignore[index]  # it also matches nothing
    _check_encoded(url, rest, authority)
    account, at, listed = authority.rpartition("@")
    path, _, query = rest[len(authority) :].partition("?")
    hosts = tuple(_host(url, one, SENTINEL_PORT if kind == "sentinel" else CLUSTER_PORT) for one in listed.split(","))
    _check_options(url, scheme, query)
    options = dict(parse_qsl(query, keep_blank_values=True))
    allows_eviction = options.pop(OWN, "") == YES
    username, password = options.pop("sentinel_username", None), options.pop("sentinel_password", None)
    service, database = _service(url, path) if kind == "sentinel" else ("", "0")
    if kind == "cluster" and (path not in {"", "/", "/0"} or options.get("db", "0") != "0"):
        raise _refusal(url, f"a cluster has only database 0 ({ENCODE})" if path else "a cluster has only database 0")
    _check_readable(url)
    first = f"[{hosts[0].name}]" if ":" in hosts[0].name else hosts[0].name
    node_url = (
        f"{security}://{account}{at}{first}:{hosts[0].port}/{database}{'?' if options else ''}{urlencode(options)}"
    )
    return Address(
        Deployment(kind),
        masked(url),
        node_url,
        hosts,
        service,
        sentinel_username=username,
        sentinel_password=password,
        allows_eviction=allows_eviction,
    )


def _without_own(url: str) -> tuple[str, bool]:
    """Return a URL without the option that is ours and not redis-py's, and whether it allows eviction."""
    before, _, query = url.partition("?")
    options = query.split("&")
    others = [one for one in options if one.partition("=")[0] != OWN]
    return before + ("?" if others[0:1] != [""] and others else "") + "&".join(others), f"{OWN}={YES}" in options


def _check_single(url: str, scheme: str, rest: str) -> None:
    """Refuse a URL that redis-py would read as another server or as database 0, often due to an unencoded password."""
    if scheme not in {"redis", "rediss", "unix"} or not url.startswith(f"{scheme}://"):
        raise _refusal(url, KNOWN)
    authority = AUTHORITY.match(rest)[0]  # type: ignore[index]  # it also matches nothing
    path, _, query = rest[len(authority) :].partition("?")
    listed = authority.rpartition("@")[2]
    _check_encoded(url, rest, authority)
    if scheme == "unix":
        if listed or not path.startswith("/"):
            raise _refusal(url, f"unix:// is followed by the socket's absolute path ({ENCODE})")
        _check_options(url, scheme, query)
        return
    if listed:
        _host(url, listed, CLUSTER_PORT)
    if not DATABASE.fullmatch(path):
        raise _refusal(url, f"the host is followed by /DATABASE, a number, or by nothing ({ENCODE})")
    _check_options(url, scheme, query)


def _check_encoded(url: str, rest: str, authority: str) -> None:
    """Refuse a URL in which the password may end too early, so that its rest would be read as a host."""
    path, _, query = rest[len(authority) :].partition("?")
    if "#" in rest or "@" in query or (authority and "@" in path):
        raise _refusal(url, ENCODE)


def _check_readable(url: str) -> None:
    """Refuse a URL that the checks before accept and that may still hide a password, as in `host,password=...@rest`."""
    if not is_readable(url):
        raise _refusal(url, f"{ENCODE}, and so must commas and semicolons")


def _check_options(url: str, scheme: str, query: str) -> None:
    wrong = wrong_option(scheme, query)
    if wrong:
        raise _refusal(url, wrong)


def _host(url: str, text: str, default_port: int) -> Host:
    found = HOST.fullmatch(text)
    port = int(found["port"] or default_port) if found else 0
    if found is None or not 1 <= port <= PORT_MAX:
        detail = f"each host is NAME or NAME:PORT, with a port from 1 to {PORT_MAX}, separated by commas ({ENCODE})"
        raise _refusal(url, detail)
    return Host(unquote(found["name"]).strip("[]"), port)


def _service(url: str, path: str) -> tuple[str, str]:
    service, _, database = unquote(path).strip("/").partition("/")
    if not SERVICE_NAME.fullmatch(service) or not (database.isdecimal() or database == ""):
        detail = f"the Sentinels are followed by /SERVICE, in letters, digits and ._-, and perhaps /DATABASE ({ENCODE})"
        raise _refusal(url, detail)
    return service, database or "0"


def _refusal(url: str, detail: str) -> InvalidInput:
    return InvalidInput(f"{masked(url)!r} is not a Redis URL: {detail}")


def is_encoding_usable(encoding: str) -> bool:
    """Return whether a server can read commands in this encoding."""
    try:
        codecs.lookup(encoding)
        return PROBE.encode(encoding) == PROBE.encode()
    except (LookupError, TypeError, UnicodeError):
        return False


def _is_error_handler(name: str) -> bool:
    try:
        codecs.lookup_error(name)
    except LookupError:
        return False
    return True


def _is_number(kind: Callable[[str], NumberT], least: NumberT) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            found = kind(value)
        except ValueError:
            return False
        return isfinite(found) and found >= least

    return check


_is_seconds: Final = _is_number(float, 1e-3)
_is_from_0: Final = _is_number(int, 0)
_is_from_1: Final = _is_number(int, 1)
CHECKED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "db": (_is_from_0, "a whole number, 0 or more"),
    "max_connections": (_is_from_1, "a whole number, 1 or more"),
    "socket_read_size": (_is_from_1, "a whole number, 1 or more"),
    "health_check_interval": (_is_from_0, "a whole number of seconds, 0 or more"),
    "socket_timeout": (_is_seconds, "a number of seconds, 0.001 or more"),
    "socket_connect_timeout": (_is_seconds, "a number of seconds, 0.001 or more"),
    "protocol": (PROTOCOLS.__contains__, "2 or 3"),
    "encoding": (is_encoding_usable, "one that a server can read: use utf-8"),
    "encoding_errors": (_is_error_handler, "one of strict, ignore, replace"),
    OWN: ((YES, "no").__contains__, "yes or no"),
    "ssl_cert_reqs": (CERTIFICATES.__contains__, f"one of {', '.join(CERTIFICATES)}"),
    "ssl_min_version": (TLS_VERSIONS.__contains__, "771 for TLS 1.2 or 772 for TLS 1.3"),
}
KNOWN_OPTIONS: Final = TEXTS | CHECKED.keys()


def wrong_option(scheme: str, query: str) -> str | None:
    """Return what is wrong with the first invalid option, without its value, or None if all are valid."""
    security, plus, kind = scheme.partition("+")
    known = KNOWN_OPTIONS | (SENTINEL if kind == "sentinel" else frozenset())
    for part in filter(None, query.split("&")):
        if "=" not in part:
            return "each option is NAME=VALUE, separated by &"
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in SENTINEL - known:
            return "sentinel_username and sentinel_password are options of redis+sentinel:// only"
        if name == "ssl":
            return f"there is no option ssl: for TLS begin with rediss{plus}{kind}://"
        if name not in known:
            return unknown("option", name, known)
        if name.startswith(TLS) and security != "rediss":
            return f"the option {name} needs TLS: begin with rediss{plus}{kind}://"
        if name == "socket_keepalive" and security == "unix":
            return f"the option {name} is for TCP, not for a Unix socket"
        check, wanted = CHECKED.get(name, (None, ""))
        if check and not check(value):
            return f"the option {name} should be {wanted}"
    return None
