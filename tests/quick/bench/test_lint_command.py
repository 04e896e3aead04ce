"""`segmented bench lint`: a line a rule, and an exit code."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench.lint.rules import RULES, lint_file
from segmented.errors import InvalidInput
from tests.support.bench.lint_results import honest, lay_out
from tests.support.bench.session import write_session

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import ResultFile


@pytest.fixture(autouse=True)
def without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up file follows from no plan."""
    monkeypatch.setattr("bench.lint.rules.RULES", RULES[:24])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("results")
    lay_out(found)
    return found


def printed(path: Path) -> tuple[int, str]:
    said = StringIO()
    code = lint_file(path, Console(file=said))
    return code, said.getvalue()


def uncommitted() -> ResultFile:
    """Return the file of a plan that nobody committed."""
    found = honest()
    return found.model_copy(update={"session": found.session.model_copy(update={"plan_commit": None})})


def test_the_command_prints_a_line_a_rule_and_ends_with_0(folder: Path) -> None:
    write_session(honest(), folder / "results.jsonl")
    code, said = printed(folder)
    lines = said.splitlines()
    assert code == 0
    assert len(lines) == 25
    assert lines[0] == (
        "R1 closed and open loops are never mixed: holds: "
        f"{sum(run.cell.loop == 'closed' for run in honest().runs)} runs closed, 40 open, and no sweep has both"
    )


def test_the_command_ends_with_1_when_a_rule_is_broken(folder: Path) -> None:
    file = folder / "broken.jsonl"
    write_session(uncommitted(), file)
    code, said = printed(file)
    assert code == 1
    assert "R20 planned before, reported whole: broken: the plan was not committed before the run\n" in said
    assert said.endswith("23 of 24 rules hold, 1 is broken: a table of these results may not be published.\n")


def test_a_file_of_another_kind_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"schema": "another/9"}\n')
    with pytest.raises(InvalidInput) as refused:
        lint_file(file, Console(file=StringIO()))
    assert str(refused.value) == f"{file}, line 1 is of schema 'another/9', and this reads 'segmented-bench/1'"
