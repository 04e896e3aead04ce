"""The rings of tests, from the inside out, and what to do about a server that is not there."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pathlib import Path

RINGS: Final = {
    "tidy": 120,
    "unit": 180,
    "contract": 180,
    "property": 240,
    "simulation": 240,
    "faults": 300,
    "integration": 300,
    "docs": 900,
    "install": 300,
}
"""Ring, which is also its folder and its marker -> seconds after which one of its tests is stopped."""

BENCH: Final = "bench"
"""The folder of the bench's own tests, which has the rings as its folders."""
QUICK: Final = {"tidy", "unit", "contract", "property", "simulation"}
"""The rings that `make test` runs, besides single tests of the others that are marked as quick: one of each kind."""
OTHER_SIDES: Final = re.compile(r"memory-async|asyncio-memory|redis-sync-resp3|redis-sync-resp2-text|redis-async-resp2")
"""Of the contract ring, `make test` runs three sides: memory and Redis with threads, and Redis with asyncio."""


@cache  # asked for every test, of which a file has many
def ring_of(path: Path) -> str:
    """Return the ring a test file belongs to. Raises UsageError for a file outside of all rings."""
    parts = path.relative_to(TESTS).parts
    ring = parts[parts[0] == BENCH]
    if ring not in RINGS:
        message = f"{path} is in no ring: tests live in tests/[{BENCH}/]<ring>/, one of {', '.join(RINGS)}"
        raise pytest.UsageError(message)
    return ring


def is_quick(ring: str, name: str) -> bool:
    """Is a test, of this name with its parameters, one that `make test` runs?"""
    return ring in QUICK and (ring != "contract" or OTHER_SIDES.search(name) is None)


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
