import tomllib
from typing import Final

import pytest

from tests.quick.tidy import rules_text as rules
from tests.quick.tidy.sources import Rule, committed, files, offences
from tests.support.paths import ROOT

PUBLISHED: Final = {"celery-beat-compared.md", "celery-dedup-compared.md", "lock-comparison.md"}
"""Pages with the sentences of published results, which stay as they were published."""

HELPS: Final = ("cli.py", "commands.py", "demo.py")
"""Files of the bench with the texts of its commands."""


@pytest.mark.parametrize("rule", [rules.finished, rules.no_machine_path])
def test_all_text_keeps(rule: Rule) -> None:
    looked_at = [path for path in committed() if path.name != "LICENSE"]
    assert ROOT / "pyproject.toml" in looked_at
    assert offences(rule, looked_at) == []


def test_pages_and_helps_are_in_plain_english() -> None:
    kept: set[str] = set()
    pages = [path for path in files("docs", suffix=".md") if "results" not in path.parts and path.name not in kept]
    helps = [*sorted((ROOT / "segmented" / "cli").glob("*.py")), *(ROOT / "bench" / name for name in HELPS)]
    assert len(pages) > 60
    assert offences(rules.plain_english, [ROOT / "README.md", *pages, *helps]) == []


def test_sentences_of_pages_begin_with_the_actor_and_use_the_usual_words() -> None:
    found = [path for path in files("docs", suffix=".md") if "results" not in path.parts]
    pages = [path for path in found if path.name not in PUBLISHED]
    assert len(pages) > 45
    assert offences(rules.plain_prose, [ROOT / "README.md", *pages]) == []


def test_every_exception_in_the_configuration_has_a_reason() -> None:
    assert offences(rules.exceptions_have_reasons, [ROOT / "pyproject.toml"]) == []


def test_the_changelog_has_an_unreleased_part() -> None:
    assert offences(rules.has_unreleased_part, [ROOT / "CHANGELOG.md"]) == []


def test_all_ruff_rules_are_on() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert configured["select"] == ["ALL"]
