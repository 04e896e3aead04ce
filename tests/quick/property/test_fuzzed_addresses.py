"""Addresses put together at random, with a secret in them and mistakes around it: none is shown with the secret."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unicodedata import category

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from segmented.celery.selling.order_formats import Reading
from segmented.celery.selling.orders_file import read_orders
from segmented.errors import InvalidInput
from segmented.masking import masked
from segmented.models import Order
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


# Files of orders with random damage: each is read as a whole, or refused in a sentence that a terminal can show.


SENTENCE_MAX: Final = 900
HEADERS: Final = (
    "order_id",
    "Name;Lineitem quantity",
    "sep=|",
    "quantity",
    "customer_id",
    "sku",
    "submitted_at",
    "",
    "order_id ",
    "\ufefforder_id",
    "\u202e",
)
CELLS: Final = (
    "a",
    "b",
    "1",
    "2",
    "-1",
    "1e9",
    "9" * 30,
    "",
    " ",
    "mug",
    "=1+1",
    "\x1b[2J",
    "\u200b",
    '"',
    "a\nb",
    "~0123456789ab",
)
rows = st.lists(st.sampled_from(CELLS), min_size=0, max_size=5).map(",".join)
damage = st.tuples(st.floats(0, 1), st.binary(max_size=8), st.integers(0, 8))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Write a header and rows, then put, take out or turn some bytes."""
    usual = st.just("order_id,quantity,customer_id")
    header = draw(st.one_of(usual, usual, st.lists(st.sampled_from(HEADERS), max_size=4).map(",".join)))
    orders = draw(
        st.lists(st.one_of(rows, st.builds("o-{},{},c".format, st.integers(0, 5), st.integers(0, 3))), max_size=6)
    )
    data = draw(st.sampled_from(("\n", "\r\n", "\r"))).join([header, *orders]).encode("utf-8", "surrogatepass")
    for share, put, gone in draw(st.lists(damage, max_size=2)):
        place = int(share * len(data))
        data = data[:place] + put + data[place + gone :]
    if draw(st.booleans()):
        return data
    packed = gzip.compress(data, mtime=0)
    for share, put, gone in draw(st.lists(damage, max_size=1)):
        place = int(share * len(packed))
        packed = packed[:place] + put + packed[place + gone :]
    return packed


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], object]:
    path = tmp_path / "orders.csv"

    def read_one(data: bytes) -> object:
        path.write_bytes(data)
        return read_orders(path, Reading(sku="mug"))

    return read_one


def test_a_damaged_file_of_orders_is_read_whole_or_refused_in_a_sentence(read: Callable[[bytes], object]) -> None:
    refused: list[str] = []
    read_whole: list[bytes] = []

    @settings(max_examples=100)
    @given(files())
    @example(b"order_id,quantity,customer_id\no-1,1,c\n")
    def is_read_or_refused(data: bytes) -> None:
        try:
            found = read(data)
        except InvalidInput as error:
            refused.append(str(error))
            return
        read_whole.append(data)
        for (_, order_id), line in found.orders.items():  # type: ignore[attr-defined]  # an OrdersFile
            assert line.order == Order(order_id, line.order.quantity, line.order.customer_id)
            assert "Cc" not in {category(one) for one in order_id}

    is_read_or_refused()
    assert [said for said in refused if not (0 < len(said) < SENTENCE_MAX and said.isprintable())] == []
    assert read_whole
