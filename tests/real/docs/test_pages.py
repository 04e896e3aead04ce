"""Every code block of README.md, docs/tutorial and docs/how-to runs as it is printed.

The pages are in three files, which several workers of a run take: this one, test_how_to.py and test_how_to_later.py.

A page is run from top to bottom, in an empty folder, against fresh servers that live for the page. Its Python blocks
share one process, its console blocks one bash on a terminal. Nothing is put in but addresses: those that
tests/real/docs/addresses.py lists are exchanged for those of the test's servers.

- ```` ```python ````: run with warnings as errors. A ```` ```text ```` block right behind it is all that it prints.
- ```` ```console ````: lines that begin with `$ ` are typed, `> ` continues one; what follows has to be printed, in
  that order, and every command has to end with 0. `pip install` and `python3 -m venv` are not run.
- ```` ```bash ````: typed as it stands.
- A block whose first line is a comment with a file's name (`# shop.py`) is saved under that name and not run.
- toml, yaml and json are parsed; other text blocks are quotations and no code.
- In what is printed every number stands for any number, and `...` for anything (tests/real/docs/compare.py).

A comment on the line before a block changes that:

- `<!-- background -->`: its last command goes on; it is ready when it has printed what the page shows, and is ended
  after the page, as by Ctrl-C.
- `<!-- exits 2 -->`: its last command ends with this code.
- `<!-- not run: needs a Kubernetes cluster -->`: it does not run, for this reason. At most one block in twenty is so.
- `<!-- in a checkout -->`, anywhere in a page: the folder is a copy of the repository, with its `.venv`.
"""

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.real.docs.blocks import blocks_of, unfenced
from tests.real.docs.pages import cases, pages, run_page
from tests.support.paths import ROOT

NOT_RUN_PERCENT_MAX: Final = 5.0
PAGES: Final = pages()


@pytest.mark.parametrize("page", cases(lambda page: page.parent.name != "how-to"))
def test_every_block_of_the_page_runs_as_printed(page: Path, request: pytest.FixtureRequest, warmed: Path) -> None:
    run_page(page, partial(request.getfixturevalue, "postgres_database"), warmed)


def test_at_most_one_block_in_twenty_is_not_run() -> None:
    blocks = [(page.stem, block) for page in PAGES for block in blocks_of(page) if block.is_code]
    not_run = [f"{page}: {block.why_not}" for page, block in blocks if block.why_not is not None]
    assert len(blocks) > 100
    assert 100 * len(not_run) <= NOT_RUN_PERCENT_MAX * len(blocks), (len(blocks), not_run)


def test_every_block_is_fenced_so_that_it_can_be_run() -> None:
    found = {str(page.relative_to(ROOT)): unfenced(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: blocks for page, blocks in found.items() if blocks} == {}
