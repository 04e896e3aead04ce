"""Compare-and-delete by the server's own commands: which are found, and the exact bytes of each."""

from __future__ import annotations

import pytest

from segmented.protocol.wire import QUESTION, Dialect, dialect_of
from segmented.stores.redis.exchange import packed

VALKEY = [["delifeq", 3], None, None]
REDIS = [None, ["delex", -2], None]
TAIR = [None, None, ["cad", 3]]


def test_the_server_is_asked_for_its_commands_in_one_question() -> None:
    assert packed([QUESTION]) == (b"*5\r\n$7\r\nCOMMAND\r\n$4\r\nINFO\r\n$7\r\nDELIFEQ\r\n$5\r\nDELEX\r\n$3\r\nCAD\r\n")


@pytest.mark.parametrize(
    ("reply", "dialect"),
    [
        (VALKEY, Dialect.VALKEY),
        (REDIS, Dialect.REDIS),
        (TAIR, Dialect.TAIR),
        ([["delifeq", 3], ["delex", -2], None], Dialect.VALKEY),
        ([None, None, None], Dialect.SCRIPT),
        ([[], [], []], Dialect.SCRIPT),
        ({b"delifeq": ["delifeq"]}, Dialect.VALKEY),
        ({"delifeq": None, "delex": ["delex"]}, Dialect.REDIS),
        ([["delifeq", 3]], Dialect.SCRIPT),
        (PermissionError("no COMMAND for this account"), Dialect.SCRIPT),
    ],
)
def test_the_reply_names_the_dialect_and_anything_unclear_means_scripts(reply: object, dialect: Dialect) -> None:
    assert dialect_of(reply) is dialect


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        (Dialect.VALKEY, b"*3\r\n$7\r\nDELIFEQ\r\n$1\r\nk\r\n$1\r\nv\r\n"),
        (Dialect.REDIS, b"*4\r\n$5\r\nDELEX\r\n$1\r\nk\r\n$4\r\nIFEQ\r\n$1\r\nv\r\n"),
        (Dialect.TAIR, b"*3\r\n$3\r\nCAD\r\n$1\r\nk\r\n$1\r\nv\r\n"),
    ],
)
def test_a_compare_and_delete_is_these_bytes(dialect: Dialect, raw: bytes) -> None:
    assert packed([dialect.compare_and_delete("k", "v")]) == raw


SET_IFEQ = b"*7\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$4\r\nIFEQ\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n30000\r\n"


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        (Dialect.VALKEY, SET_IFEQ),
        (Dialect.REDIS, SET_IFEQ),
        (Dialect.TAIR, b"*6\r\n$3\r\nCAS\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n30000\r\n"),
    ],
)
def test_a_renewal_is_these_bytes_and_always_carries_its_end(dialect: Dialect, raw: bytes) -> None:
    assert packed([dialect.compare_and_keep("k", "v", 30_000)]) == raw


def test_several_commands_and_other_alphabets_are_packed_by_their_bytes() -> None:
    assert packed([("GET", "ü"), ("TTL", 7)]) == b"*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xbc\r\n*2\r\n$3\r\nTTL\r\n$1\r\n7\r\n"
