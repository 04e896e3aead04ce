"""Output that the terminal or the reader of a pipe has no code for: each command ends as it would have, and is read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from segmented import Lock, Order, Pool, RedisStore
from segmented.servers import ValkeyServer

LIMIT: Final = 120
"""Seconds that a process of its own may take on a slow machine."""
ENCODING: Final = "cp1252"
"""Of redirected output on Windows. (What says that it is ASCII gets UTF-8.)"""
SKU: Final = "касса"
LOCK: Final = "отчёт"
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "pool show": ("pool", "show", SKU),
    "pool orders in CSV": ("pool", "orders", SKU, "--format", "csv"),
    "pool restock": ("pool", "restock", SKU, "5", "--id", "поставка"),
    "lock list": ("lock", "list"),
}


@pytest.fixture
def shop(valkey: ValkeyServer) -> Iterator[str]:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=3, segments=1)
        pool.reserve(Order("зак-1", 1))
        lease = Lock(store, LOCK, ttl=600).acquire()
        yield valkey.url
        lease.release()


def said(url: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "segmented", *words, "--url", url],
        capture_output=True,
        check=False,
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": ENCODING},
    )
    return done.returncode, done.stdout.decode(ENCODING), done.stderr.decode(ENCODING)


def escaped(name: str) -> str:
    return name.encode(ENCODING, "backslashreplace").decode(ENCODING)


def test_a_command_ends_as_ever_and_escapes_what_its_reader_has_no_code_for(shop: str) -> None:
    found = {name: said(shop, *words) for name, words in COMMANDS.items()}
    heads = {"lock list": "name\tkind\theld by\tprocess\tage\tleft\tfence\twait\n"}
    assert {name: one for name, one in found.items() if (one[0], one[2]) != (0, heads.get(name, ""))} == {}
    sku, lock, order = (escaped(name) for name in (SKU, LOCK, "зак-1"))
    assert sku in found["pool show"][1]
    assert lock in found["lock list"][1]
    assert order in found["pool orders in CSV"][1]
    code, _, errors = said(shop, "pool", "show", "нет")
    assert (code, errors.count("\n")) == (1, 1)
    assert f"pool '{escaped('нет')}' is not open" in errors
