"""Hides everything that may be a password in the address of a Redis server, a broker or a database."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"
NUMBERS: Final = frozenset(
    {
        *("db", "protocol", "socket_timeout", "socket_connect_timeout", "socket_read_size", "max_connections"),
        *("health_check_interval", "heartbeat", "ssl_min_version"),
        *("port", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "immutable", "nolock", "read_timeout", "write_timeout"),
    }
)
"""Options whose values are shown if they are numbers."""
HARMLESS: Final = frozenset(
    {
        # Redis and Valkey, Sentinels, Celery's brokers
        *("virtual_host", "client_name", "lib_name", "lib_version", "socket_keepalive", "retry_on_timeout"),
        *("encoding", "encoding_errors", "decode_responses", "legacy_responses"),
        *("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"),
        *("ssl_ca_path", "ssl_check_hostname", "ssl_ciphers"),
        # PostgreSQL and SQLite
        *("host", "hostaddr", "dbname", "application_name", "client_encoding"),
        *("fallback_application_name", "target_session_attrs", "load_balance_hosts", "channel_binding", "gssencmode"),
        *("require_auth", "passfile", "service", "sslmode", "sslnegotiation", "sslcert", "sslkey", "sslrootcert"),
        *("sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        *("uri", "mode", "cache"),
        # MariaDB and MySQL
        *("unix_socket", "charset", "ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "ssl_cipher"),
    }
)
"""Options whose values are shown; all other values are hidden, since another option may be a mistyped `password`."""
NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PATHS: Final = ("unix://", "redis+socket://", "sqlite://", "sqlite+")
"""Schemes followed by a path, in which an @ or a colon is an ordinary character."""
NO_HOST: Final = (*PATHS, "postgresql", "mysql", "mariadb")
"""Schemes in which a path may directly follow the @."""
NUMBERED: Final = ("redis://", "rediss://", "redis+cluster://", "rediss+cluster://")
"""Schemes whose path is the number of a database."""
HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%[^\[\]]+)?\]|[^\[\]:,=\s]+)(?::(?P<port>[0-9]{1,5}))?")
SHOWN_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?")
ADDRESS: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(/[0-9]*)?")
"""A host, a port and a database, and nothing else."""


def masked(url: str) -> str:
    """Return a URL without its passwords. A text that cannot be read as a URL is hidden as a whole, except its scheme.

    A user is shown only if a password follows, and an option's value only if the option is known to be harmless. A text
    without a scheme is shown only if it is a host and a port, since it may be a misplaced password.
    """
    found = SCHEME.match(url)
    if found is None:
        return url if not url or ADDRESS.fullmatch(url) else MASK
    scheme = found[0]
    kind = scheme.lower()
    account, at, rest = url[len(scheme) :].rpartition("@")
    if kind.startswith(PATHS) and url[len(scheme) :].startswith("/"):
        account, at, rest = "", "", url[len(scheme) :]
    user, _, password = account.partition(":")
    readable, hash_sign, _ = rest.partition("#")
    where, mark, query = readable.partition("?")
    if not (_is_account(account, at) and _is_place(kind, where, is_named=bool(at))):
        return f"{scheme}{MASK}"
    who = f"{user}:{MASK}@" if password else f"{MASK}@" if at else ""
    options = "&".join(map(_option, query.split("&")))
    return f"{scheme}{who}{where}{mark}{options}{f'#{MASK}' if hash_sign else ''}"


def is_readable(url: str) -> bool:
    """Return whether a URL is what it seems to be: no part of a password can be taken for a host, path or option."""
    return SCHEME.match(url) is not None and not masked(url).endswith(f"://{MASK}")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown option or setting, with the most similar known one."""
    near = get_close_matches(name.lower(), sorted(known), n=1)
    said = name if NAME.fullmatch(name) else MASK
    return f"there is no {what} {said}" + (f"; did you mean {near[0]}?" if near else "")


def _is_account(account: str, at: str) -> bool:
    """Return whether this is a user, a password, or both; with other characters, the @ may be one of a password."""
    return not at or re.search(r"[?#\s]|[,;]\w+=", account) is None


def _is_place(kind: str, where: str, *, is_named: bool) -> bool:
    """Return whether these are hosts and a path of this kind of URL; otherwise they may be part of a password."""
    if kind.startswith(PATHS):
        return where.startswith("/") or not (where or is_named)
    hosts, _, path = where.partition("/")
    are_hosts = all(SHOWN_HOST.fullmatch(one) for one in hosts.split(","))
    if not hosts:
        are_hosts = kind.startswith(NO_HOST) or not is_named
    is_path = path.isdecimal() or not path if kind.startswith(NUMBERED) else not re.search(r"[@:,;=]", path)
    return is_path and are_hosts


def is_harmless(name: str, value: str) -> bool:
    """Return whether the value of an option may be shown."""
    return (name in HARMLESS or (name in NUMBERS and NUMBER.fullmatch(value) is not None)) and "=" not in value


def _option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals or not NAME.fullmatch(unquote(name)):
        return MASK if option else ""
    return option if is_harmless(name, value) else f"{name}={MASK}"
