"""The rings of tests, by what decides them, and what to do about a server that is not there.

| ring | what decides its tests | command |
| --- | --- | --- |
| quick | the code alone: no clock, no load and no other process but one Valkey | `make test` |
| real | servers, processes, kills and frameworks; each waits for an event | `make real` |
| long | further servers, versions and seeds of what the others show | `make test-long` |

A test is in the ring of its folder, or in an outer one by its marker or by its side (see `ring_of_side`); of the sides
of Redis, each test has one (see `side_of_turn`).
"""

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.flavour import Flavour
from tests.support.paths import TESTS

RINGS: Final = {"quick": 240, "real": 300, "long": 3_600}
"""Ring, which is also its folder and its marker -> seconds after which one of its tests is stopped, as hung."""
MEMORY: Final = "memory-sync"
REDIS: Final = "redis-sync-resp2-bytes"
IN_TURN: Final = {"side", "redis_side"}
"""Fixtures whose tests run on one side of Redis each, in turn: see `side_of_turn`."""
COMMANDS: Final = {"quick": "make test", "real": "make real", "long": "make test-long"}


@cache  # asked for every test, of which a file has many
def ring_of(path: Path) -> str:
    """Return the ring of a test file's folder. Raises UsageError for a file outside of all rings."""
    ring = path.relative_to(TESTS).parts[0]
    if ring not in RINGS:
        raise pytest.UsageError(f"{path} is in no ring: tests live in tests/<ring>/, one of {', '.join(RINGS)}")
    return ring


def ring_of_side(flavour: Flavour, *, has_memory: bool) -> str:
    """Return the innermost ring for a store and colour; `has_memory`: the test runs on memory, too.

    Quick is memory, whose clock the test moves, or Redis for a test that has no memory side. All others are real.
    """
    side = str(flavour)
    return "quick" if side == MEMORY or (side == REDIS and not has_memory) else "real"


def side_of_turn(test: str, sides: Sequence[Flavour]) -> Flavour:
    """Return the one side of Redis, of those of a test, on which it is run in the real ring.

    Memory runs the scripts that Redis runs, and the sync drivers are written from the async ones: what differs between
    the sides is how a request is sent and an answer is read, which each operation does in several tests.
    """
    return sides[crc32(test.encode()) % len(sides)]


def outermost(rings: set[str]) -> str:
    """Return the ring that includes the others."""
    return max(rings, key=list(RINGS).index)


def require(server: str, *, found: bool, missing: str) -> None:
    """Go on if the server was found; else skip by name on a laptop, and fail under CI, where it must be there.

    `missing` says in a few words what was looked for.
    """
    if found:
        return
    sentence = f"{server} is missing: {missing}"
    if os.environ.get("CI") in {"1", "true"}:
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def require_module(server: str, module: str) -> None:
    """`require` for a server, or a client of one, that comes as a Python package."""
    require(server, found=find_spec(module) is not None, missing=f"the Python package {module} is not installed")
