"""Every mutant still applies, breaks what it says, and names tests that are there."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.catalogue import ROOT, Mutant, mutants

MUTANTS = mutants()


@cache
def functions_in(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def wrong_with(mutant: Mutant) -> str:
    """Return why a mutant cannot be run, or nothing."""
    try:
        mutant.changed((ROOT / mutant.file).read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        return str(error)
    if bool(mutant.tests) == bool(mutant.equivalent) or not (mutant.breaks or mutant.equivalent):
        return "it names tests, or why it is none, and what it breaks"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        if not (ROOT / file).is_file() or (name and name.partition("[")[0] not in functions_in(ROOT / file)):
            return f"there is no {test}"
    return ""


def test_every_mutant_applies_and_names_tests_that_are_there_or_why_it_is_none() -> None:
    assert {mutant.name: wrong for mutant in MUTANTS if (wrong := wrong_with(mutant))} == {}


def test_a_mutant_that_no_longer_applies_is_an_error() -> None:
    mutant = Mutant("area", 3, "a.py", "if a:", "if not a:", "a promise", ("tests/x.py",))
    assert mutant.changed("if a:\n") == "if not a:\n"
    for text in ("if b:\n", "if a:\nif a:\n"):
        with pytest.raises(ValueError, match=r"^mutant area-3 does not apply: a\.py has its text [02] times$"):
            mutant.changed(text)


def test_no_two_mutants_are_the_same_change() -> None:
    changes = [(mutant.file, mutant.find, mutant.becomes) for mutant in MUTANTS]
    assert len(changes) == len(set(changes))
