"""The options that a Redis URL may have: those of redis-py that are a text, a number, or a boolean.

Other options, such as `retry` or `credential_provider`, are objects in redis-py. To use them, create a client with them
and pass it to the store. redis-py accepts any option in a URL and fails later, so this module checks all of them.
"""

from __future__ import annotations

import codecs
import ssl
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qsl

from segmented.masking import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

NumberT = TypeVar("NumberT", int, float)

PROBE: Final = "PING"
PROTOCOLS: Final = ("2", "3")
CERTIFICATES: Final = ("none", "optional", "required")
TLS_VERSIONS: Final = tuple(str(int(version)) for version in ssl.TLSVersion)
SENTINEL: Final = frozenset({"sentinel_username", "sentinel_password"})
TLS: Final = "ssl_"
TEXTS: Final = frozenset(
    {
        *("username", "password", "client_name", "lib_name", "lib_version"),
        *("decode_responses", "legacy_responses", "retry_on_timeout", "socket_keepalive"),
        *("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_password", "ssl_ciphers"),
        *("ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled", "ssl_ocsp_expected_cert"),
        *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
    }
)


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
    "ssl_cert_reqs": (CERTIFICATES.__contains__, f"one of {', '.join(CERTIFICATES)}"),
    "ssl_min_version": (TLS_VERSIONS.__contains__, "771 for TLS 1.2 or 772 for TLS 1.3"),
}
KNOWN: Final = TEXTS | CHECKED.keys()


def wrong_option(scheme: str, query: str) -> str | None:
    """Return what is wrong with the first invalid option, without its value, or None if all are valid."""
    security, plus, kind = scheme.partition("+")
    known = KNOWN | (SENTINEL if kind == "sentinel" else frozenset())
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
