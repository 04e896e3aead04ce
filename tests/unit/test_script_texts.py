"""The text that is sent to the server: of the shared parts, a script has the functions that it names, and no others."""

from __future__ import annotations

import re

import pytest

from segmented.protocol.wire import load_script
from tests.support.paths import ROOT

LUA = [path for path in (ROOT / "segmented" / "protocol").rglob("*.lua") if path.name != "kind.lua"]
SCRIPTS = sorted(path.stem for path in LUA if path.parent.name != "shared")
DEFINED = re.compile(r"^local function (\w+)\(", re.MULTILINE)
CALLED = re.compile(r"(?<![\w.:])(\w+)\(")


def code_of(text: str) -> list[str]:
    return [line.partition("--")[0] for line in text.splitlines()]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_function_of_a_script_is_named_after_its_end(name: str) -> None:
    code = code_of(load_script(name).text)
    for place, line in enumerate(code):
        if found := DEFINED.match(line):
            end = code.index("end", place)
            assert re.search(rf"\b{found[1]}\b", "\n".join(code[end:])), found[1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_shared_function_that_a_script_calls_is_in_it(name: str) -> None:
    shared = {one for path in LUA if path.parent.name == "shared" for one in DEFINED.findall(path.read_text())}
    text = "\n".join(code_of(load_script(name).text))
    local = set(re.findall(r"\blocal (?:function )?(\w+)", text))
    assert (set(CALLED.findall(text)) & shared) - local == set()


def test_a_script_that_reads_a_pool_is_less_than_half_of_what_is_shared() -> None:
    shared = (ROOT / "segmented" / "protocol" / "shared" / "pool.lua").read_text()
    assert len(DEFINED.findall(load_script("read_pool").text)) < len(DEFINED.findall(shared)) / 2
