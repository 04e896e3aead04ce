from __future__ import annotations

import pytest

from tests.support.paths import ROOT
from tests.tidy import rules_lua as rules
from tests.tidy.sources import Rule, files, offences

SCRIPTS = [path for path in files("segmented", suffix=".lua") if path.parent.name != "shared"]
SHARED = [path for path in files("segmented", suffix=".lua") if path.parent.name == "shared"]


def test_every_script_is_in_the_folder_of_its_concept() -> None:
    assert {path.parents[1] for path in SCRIPTS + SHARED} == {ROOT / "segmented" / "protocol"}


def test_every_script_opens_with_its_contract() -> None:
    assert offences(rules.contract, SCRIPTS) == []


def test_every_shared_part_names_its_keys_and_arguments() -> None:
    assert offences(rules.arguments_are_named, SHARED) == []


@pytest.mark.parametrize("rule", [rules.no_scan, rules.no_key_literal, rules.plain_comments])
def test_all_lua_keeps(rule: Rule) -> None:
    assert offences(rule, SCRIPTS + SHARED) == []


def test_every_shared_part_that_is_used_exists() -> None:
    used = {rules.contract_of(path.read_text(encoding="utf-8")).get("uses", "").strip() for path in SCRIPTS} - {""}
    assert used == {f"shared/{path.name}" for path in SHARED}
