"""Addresses with a password in the wrong place, in the wrong form, or beside a mistake: none may be shown."""

import re
from itertools import product
from typing import Final

SECRET: Final = "hunter2sesame"
PIECES: Final = ("hunter2", "sesame")
"""No output has one of these: a password may be cut where an address ends too early."""
SCHEMES: Final = (
    *("redis", "rediss", "redis+sentinel", "redis+cluster", "rediss+cluster", "valkey", "unix", "redis+socket"),
    *("amqp", "sentinel", "postgresql", "postgresql+psycopg", "sqlite", "mysql", "rediis", "http"),
)
PASSWORDS: Final = (SECRET, "hunter2@sesame", "hunter2/sesame", "hunter2?sesame", "hunter2#sesame", "hunter2,sesame")
PLACES: Final = (
    "{scheme}://u:{password}@127.0.0.1:1/0",
    "{scheme}://u:{password}",
    "{scheme}://:{password}",
    "{scheme}://{password}@",
    "{scheme}://{password}@127.0.0.1:1",
    "{scheme}://u:{password},127.0.0.1",
    "{scheme}://127.0.0.1:1,password={password}",
    "{scheme}:{password}@127.0.0.1:1",
    "{scheme}//u:{password}@127.0.0.1:1",
    "u:{password}@127.0.0.1:1",
    "{scheme}://u:p:{password}@127.0.0.1:1:2",
)
OPTIONS: Final = (
    *("password", "ssl_password", "sslpassword", "sentinel_password", "sentinel%5fpassword", "pass%77ord", "Password"),
    *("pasword", "ssl_keyfile_password", "username", "sentinel_username", "user", "db", "ssl_ca_data", "options"),
    *("unknown", "socket_timeout", "protocol", "port", "ssl"),
)
"""Options into which a password may come by a mistake."""
OPTION_PLACES: Final = ("redis://127.0.0.1:1?{name}={secret}", "redis+cluster://127.0.0.1:1/?{name}={secret}&x")
MORE_OPTION_PLACES: Final = (
    *("rediss://127.0.0.1:1/0?{name}={secret}", "redis+sentinel://127.0.0.1:1/stock?a=b&{name}={secret}"),
    *(
        "postgresql://127.0.0.1:1/shop?{name}={secret}",
        "127.0.0.1:1,{name}={secret}",
        "redis://127.0.0.1:1;{name}={secret}",
    ),
)
WHOLE: Final = (
    *(
        SECRET,
        f"{SECRET}@",
        f"@{SECRET}",
        f":{SECRET}",
        f"redis:{SECRET}",
        f"redis:/{SECRET}",
        f"redis://[{SECRET}",
        f" {SECRET}",
    ),
    *(f"redis+cluster://u:{SECRET},b", f"redis+sentinel://one:1,u:{SECRET}/stock", f"redis://127.0.0.1:{SECRET}"),
    *(
        f"redis://u:{SECRET}@127.0.0.1:99999",
        f"redis://u:{SECRET}@127.0.0.1:1/x",
        f"redis://u:{SECRET}@[::1",
        f"redis://u:{SECRET}@h:p",
    ),
    *(
        f"\x00redis://u:{SECRET}@h",
        f"redis://u:{SECRET}\x00@h",
        f"redis://u:{SECRET}\ud800@h",
        f"redis://u:{SECRET}%zz@h:x",
    ),
    *(
        f"host=127.0.0.1 password={SECRET}",
        f"postgresql://u@127.0.0.1:1/shop?options=-c%20x={SECRET}",
        f"redis://127.0.0.1:1/{SECRET}",
    ),
    *(
        f"redis://127.0.0.1:1/0#{SECRET}",
        f"redis://127.0.0.1:1,password={SECRET}",
        f"--password={SECRET}",
        f"'redis://u:{SECRET}@h'",
    ),
)
VALID: Final = re.compile(r"[a-z+]+://(u?:|)hunter2@sesame(,127\.0\.0\.1)?")
"""`u:hunter2@sesame` is a user, a password and a host: not odd at all."""


def odd_urls() -> list[str]:
    """Return the addresses, each once."""
    placed = (
        place.format(scheme=scheme, password=password)
        for scheme, password, place in product(SCHEMES, PASSWORDS, PLACES)
    )
    options = (
        place.format(name=name, secret=SECRET) for name, place in product(OPTIONS, OPTION_PLACES + MORE_OPTION_PLACES)
    )
    return [url for url in dict.fromkeys((*WHOLE, *options, *placed)) if not VALID.fullmatch(url)]


def leaks(text: str) -> list[str]:
    """Return the pieces of the password that a text has."""
    return [piece for piece in PIECES if piece in text]
