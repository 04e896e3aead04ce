import re

import pytest

from segmented.protocol.wire import load_script
from tests.quick.tidy import rules_lua as rules
from tests.quick.tidy.sources import Rule, files, offences
from tests.support.paths import ROOT
from tests.support.written.stories import STORIES

LUA = [path for path in files("segmented", suffix=".lua") if path.name != "small_redis.lua"]  # it runs the scripts
SHARED = [path for path in LUA if path.parent.name == "shared" or path.name == "kind.lua"]
SCRIPTS = [path for path in LUA if path not in SHARED]
USED = re.compile(r"^-- uses (.+)$", re.MULTILINE)


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
    used = {name for path in LUA for name in USED.findall(path.read_text(encoding="utf-8"))}
    there_are = {f"{'*' if path.name == 'kind.lua' else path.parent.name}/{path.name}" for path in SHARED}
    assert used == there_are


def test_the_stories_call_every_script_that_may_write() -> None:
    """The real ring damages keys and arguments at each step of a story: a script that none calls would be left out."""
    calls = [operation.call() for story in STORIES.values() for operation in story]
    called = {call.script.name for call in calls if call.script is not None}
    assert {path.stem for path in SCRIPTS if load_script(path.stem).writes} - called == set()
