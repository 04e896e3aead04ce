"""The last how-to pages run as they are printed: see test_pages.py."""

from functools import partial
from pathlib import Path

import pytest

from tests.real.docs.pages import cases, run_page


@pytest.mark.parametrize("page", cases(lambda page: page.parent.name == "how-to" and page.stem >= "m"))
def test_every_block_of_the_page_runs_as_printed(page: Path, request: pytest.FixtureRequest, warmed: Path) -> None:
    run_page(page, partial(request.getfixturevalue, "postgres_database"), warmed)
