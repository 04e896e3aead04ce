"""The glossary has each public error, with what its class says of cause and cure."""

from __future__ import annotations

import pytest

import segmented.errors
from segmented.cli.reference import public_names
from tests.support.glossary import PAGE, section


def test_the_section_of_errors_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(section()), "`python -m tests.support.glossary` writes it"
    assert section().count("\n| `") == len(public_names(segmented.errors))


def test_an_error_without_a_cure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented.errors.PoolMissing, "__doc__", "The pool is not open.")
    with pytest.raises(LookupError, match="PoolMissing needs a second paragraph that begins with 'Cure: '"):
        section()
