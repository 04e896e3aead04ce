"""The runs differ in what they say they differ in."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.fixtures.stores import REDIS
from tests.support.flavour import Flavour
from tests.support.paths import TESTS
from tests.support.stacks import new_event_loop, parser_options

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT = TESTS / "support" / "without_hiredis"
ASK = """
from redis.utils import HIREDIS_AVAILABLE
from segmented.stores.redis import exchange
print(HIREDIS_AVAILABLE, bool(exchange.pack_command))
"""


def test_both_parsers_meet_both_colours_and_both_protocols() -> None:
    met = {(flavour.colour, flavour.protocol, bool(parser_options(flavour))) for flavour in REDIS}
    assert met == {("sync", 2, False), ("sync", 3, True), ("async", 2, True), ("async", 3, False)}


@pytest.mark.parametrize(("stack", "is_pure"), [("hiredis", False), ("uvloop", False), ("python", True)])
def test_a_stack_that_is_asked_for_is_that_of_every_side(stack: str, *, is_pure: bool) -> None:
    assert {bool(parser_options(flavour, stack)) for flavour in REDIS} == {is_pure}
    loop = new_event_loop(Flavour("redis", "async", 2), stack)
    loop.close()
    assert isinstance(loop, uvloop.Loop) is (stack == "uvloop")


@pytest.mark.parametrize(("folders", "said"), [([], "True True"), ([WITHOUT], "False False")], ids=["with", "without"])
def test_hiredis_is_there_unless_it_is_left_out(folders: list[Path], said: str) -> None:
    paths = os.pathsep.join(map(str, folders))
    found = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == said.split()
