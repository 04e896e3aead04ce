"""What every ring shares. A file in tests/fixtures/ joins by being there: private servers and stores live in it."""

from __future__ import annotations

import gc
import logging
import os
import pkgutil
import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import fixtures
from tests.rings import RINGS

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = [f"tests.fixtures.{module.name}" for module in pkgutil.iter_modules(fixtures.__path__)]

# No deadline: a shared machine is slow at times. Under CI the examples are the same in every run.
settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") in {"1", "true"} else "laptop")

# A job that a shell started in the background ignores Ctrl-C, and so would every process that a test starts; a handler
# here is the default again in whatever is run from here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without collecting garbage, of which there is none, and set all the tests aside when they are there.

    They are half a million objects, and a full collection in the midst of a test would look at each of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder's ring and the ring's time limit, and run the inner rings first."""
    for item in items:
        ring = ring_of(item.path)
        item.add_marker(getattr(pytest.mark, ring))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(RINGS[ring]))
    order = list(RINGS)
    items.sort(key=lambda item: order.index(ring_of(item.path)))


@cache  # asked for every test, of which a file has many
def ring_of(path: Path) -> str:
    """Return the ring a test file belongs to; raises UsageError for a file outside of all rings."""
    ring = path.relative_to(Path(__file__).parent).parts[0]
    if ring not in RINGS:
        message = f"{path} is in no ring: tests live in tests/<ring>/, one of {', '.join(RINGS)}"
        raise pytest.UsageError(message)
    return ring


@pytest.fixture(autouse=True)
def warnings_are_logged() -> None:
    """Let warnings be logged: an app of Celery that a test made raises the level for the whole process."""
    logging.getLogger().setLevel(logging.WARNING)
