"""Addresses put together at random, with a secret in them and mistakes around it: none is shown with the secret."""

import re
from typing import Final

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from segmented.errors import InvalidInput
from segmented.masking import masked
from segmented.orders.engine import parse
from segmented.stores.redis.addresses import parse_address

pytestmark = pytest.mark.fuzz

SECRET: Final = "s3cr3tw0rd"
SCHEMES: Final = ("redis", "rediss", "redis+sentinel", "redis+cluster", "postgresql", "postgresql+psycopg", "http", "")
HOLDERS: Final = (
    "password",
    "ssl_password",
    "sentinel_password",
    "sslpassword",
    "pasword",
    "sentinel%5fpassword",
    "token",
)
MISTAKES: Final = (
    "@",
    ":",
    "/",
    "?",
    "#",
    "&",
    ",",
    ";",
    "%",
    "[",
    "]",
    " ",
    "=",
    "\\",
    "//",
    "%2f",
    "%40",
    "\u00e9",
    "\x00",
)

accounts = st.sampled_from((f"user:{SECRET}@", f":{SECRET}@", f"user:a@{SECRET}@", f"u:{SECRET},", f"user:{SECRET}"))
places = st.sampled_from(("host", "host:6379", "host:x", "a:1,b:2", "[::1]:6379", "", "localhost"))
paths = st.sampled_from(("", "/", "/0", "/x", "/shop/0", "/data/orders.db"))
options = st.one_of(
    st.just(""),
    st.builds("?{}={}".format, st.sampled_from(HOLDERS), st.just(SECRET)),
    st.builds("?db=0&{}={}".format, st.sampled_from(HOLDERS), st.just(SECRET)),
    st.builds("?{}={}&client_name=x".format, st.sampled_from(HOLDERS), st.just(SECRET)),
)
addresses = st.builds("{}://{}{}{}{}".format, st.sampled_from(SCHEMES), accounts, places, paths, options)


@st.composite
def mistaken(draw: st.DrawFn) -> str:
    """Put up to three mistakes anywhere but inside a secret."""
    pieces = draw(addresses).split(SECRET)
    for _ in range(draw(st.integers(0, 3))):
        number = draw(st.integers(0, len(pieces) - 1))
        place = draw(st.integers(0, len(pieces[number])))
        pieces[number] = pieces[number][:place] + draw(st.sampled_from(MISTAKES)) + pieces[number][place:]
    return SECRET.join(pieces)


def said(url: str) -> list[str]:
    """Return all that is shown of an address: itself, and what is said of it where it is not usable."""
    found = [masked(url)]
    for read in (parse_address, parse):
        try:
            read(url)
        except InvalidInput as error:
            found.append(str(error))
    return found


def is_host(url: str) -> bool:
    """Return whether the mistakes have made the secret a part of the host, which nothing can tell from a host."""
    return SECRET in re.split(r"[/?#]", url.rpartition("@")[2])[0] and "@" in url


@settings(max_examples=100)
@given(mistaken())
@example(f"redis://u:p,{SECRET}")
@example(f"redis+sentinel:///u:{SECRET},host")
def test_no_part_of_an_address_with_mistakes_shows_its_secret(url: str) -> None:
    assume(not is_host(url))
    assert [text for text in said(url) if SECRET in text] == []
