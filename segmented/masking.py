"""Hides everything that may be a password in the address of a Redis server, a broker or a database."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK: Final = "***"
HARMLESS: Final = frozenset(
    {
        # Redis and Valkey, Sentinels, Celery's brokers
        *("db", "virtual_host", "username", "sentinel_username", "client_name", "lib_name", "lib_version", "protocol"),
        *("socket_timeout", "socket_connect_timeout", "socket_read_size", "socket_keepalive", "retry_on_timeout"),
        *("encoding", "encoding_errors", "decode_responses", "legacy_responses", "max_connections"),
        *("health_check_interval", "heartbeat", "ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"),
        *("ssl_ca_path", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
        # PostgreSQL and SQLite
        *("host", "hostaddr", "port", "dbname", "user", "connect_timeout", "application_name", "client_encoding"),
        *("fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "target_session_attrs", "load_balance_hosts", "channel_binding", "gssencmode"),
        *("require_auth", "passfile", "service", "sslmode", "sslnegotiation", "sslcert", "sslkey", "sslrootcert"),
        *("sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        *("uri", "mode", "cache", "immutable", "nolock"),
    }
)
"""Options whose values are shown; all other values are hidden, since another option may be a mistyped `password`."""
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PATHS: Final = ("unix://", "redis+socket://", "sqlite://", "sqlite+")
"""Schemes followed by a path, in which an @ or a colon is an ordinary character."""
NO_HOST: Final = (*PATHS, "postgresql")
"""Schemes in which a path may directly follow the @."""
HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%[^\[\]]+)?\]|[^\[\]:,=\s]+)(?::(?P<port>[0-9]{1,5}))?")
ADDRESS: Final = re.compile(r"[A-Za-z0-9.\[\]:-]+:[0-9]{1,5}(?=[/,?#]|$)")
"""A host and a port, and what may follow them."""
LISTED: Final = re.compile(r"(?:^|(?<=[,;\s]))(\w+=).*", re.DOTALL)
"""Comma-separated options, as in other libraries' addresses: `localhost:6379,password=...`."""


def masked(url: str) -> str:
    """Return a URL without its passwords, even if it is invalid or they are in the wrong place.

    A user is shown only if a password follows, and an option's value only if the option is known to be harmless. A text
    without a scheme is shown only if it begins with a host and a port, since it may be a misplaced password.
    """
    found = SCHEME.match(url)
    if found is None and url and "@" not in url and not ADDRESS.match(url):
        return MASK
    scheme = found[0] if found else ""
    kind = scheme.lower()
    rest = url[len(scheme) :]
    account, at, place = rest.rpartition("@")
    if kind.startswith(PATHS) and rest.startswith("/"):
        account, at, place = "", "", rest
    elif re.search(r"\?|[,;]\w+=", account):
        return f"{scheme}{MASK}"  # the @ may be one of a password
    user, _, password = account.partition(":")
    who = f"{user}:{MASK}@" if password else f"{MASK}@" if at else ""
    if at and place[:1] in {"", "/", "?", "#"} and not kind.startswith(NO_HOST):
        return f"{scheme}{who}"  # no host: the rest may be part of the password
    readable, hash_sign, _ = place.partition("#")
    where, mark, query = readable.partition("?")
    where = LISTED.sub(rf"\1{MASK}", where)
    if not at and ":" in where and not kind.startswith(PATHS) and not _are_hosts(where):
        return f"{scheme}{where.partition(':')[0]}:{MASK}"  # perhaps a password, and the @ behind it was forgotten
    options = "&".join(map(_option, query.split("&")))
    return f"{scheme}{who}{where}{mark}{options}{f'#{MASK}' if hash_sign else ''}"


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown option or setting, with the most similar known one."""
    near = get_close_matches(name.lower(), sorted(known), n=1)
    return f"there is no {what} {name}" + (f"; did you mean {near[0]}?" if near else "")


def _are_hosts(where: str) -> bool:
    return all(HOST.fullmatch(one) or one.endswith(f"={MASK}") for one in where.partition("/")[0].split(","))


def _option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals:
        return MASK if name else ""
    return option if name in HARMLESS and "=" not in value else f"{name}={MASK}"
