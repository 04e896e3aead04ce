"""Every mutant still applies, breaks what it says, and names tests that are there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.mutants.catalogue import ROOT, Mutant, mutants

if TYPE_CHECKING:
    from pathlib import Path

MUTANTS = mutants()


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_names_tests_that_are_there_or_why_it_is_none(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.changed(text) != text
    assert bool(mutant.tests) != bool(mutant.equivalent)
    assert mutant.breaks or mutant.equivalent
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not name or name.partition("[")[0] in functions_in(ROOT / file), test


def test_a_mutant_that_no_longer_applies_is_an_error() -> None:
    mutant = Mutant("area", 3, "a.py", "if a:", "if not a:", "a promise", ("tests/x.py",))
    assert mutant.changed("if a:\n") == "if not a:\n"
    for text in ("if b:\n", "if a:\nif a:\n"):
        with pytest.raises(ValueError, match=r"^mutant area-3 does not apply: a\.py has its text [02] times$"):
            mutant.changed(text)


def test_no_two_mutants_are_the_same_change() -> None:
    changes = [(mutant.file, mutant.find, mutant.becomes) for mutant in MUTANTS]
    assert len(changes) == len(set(changes))
