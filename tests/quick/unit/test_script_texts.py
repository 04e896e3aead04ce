"""The text that is sent to the server: of the shared parts, a script has the functions that it names, and no others."""

from __future__ import annotations

import re

from segmented.protocol import ReleaseLock
from segmented.protocol.wire import Dialect, load_script, sharded
from tests.support.paths import ROOT

LUA = [path for path in (ROOT / "segmented" / "protocol").rglob("*.lua") if path.name != "kind.lua"]
SCRIPTS = sorted(path.stem for path in LUA if path.parent.name != "shared")
DEFINED = re.compile(r"^local function (\w+)\(", re.MULTILINE)
CALLED = re.compile(r"(?<![\w.:])(\w+)\(")


def code_of(text: str) -> list[str]:
    return [line.partition("--")[0] for line in text.splitlines()]


def test_every_function_of_a_script_is_named_after_its_end() -> None:
    unused = []
    for name in SCRIPTS:
        code = code_of(load_script(name).text)
        for place, line in enumerate(code):
            if found := DEFINED.match(line):
                after = "\n".join(code[code.index("end", place) :])
                if not re.search(rf"\b{found[1]}\b", after):
                    unused.append((name, found[1]))
    assert unused == []


def test_every_shared_function_that_a_script_calls_is_in_it() -> None:
    shared = {one for path in LUA if path.parent.name == "shared" for one in DEFINED.findall(path.read_text())}
    for name in SCRIPTS:
        text = "\n".join(code_of(load_script(name).text))
        local = set(re.findall(r"\blocal (?:function )?(\w+)", text))
        assert (name, (set(CALLED.findall(text)) & shared) - local) == (name, set())


def test_a_script_that_reads_a_pool_is_less_than_half_of_what_is_shared() -> None:
    shared = (ROOT / "segmented" / "protocol" / "shared" / "pool.lua").read_text()
    assert len(DEFINED.findall(load_script("read_pool").text)) < len(DEFINED.findall(shared)) / 2


def test_in_a_cluster_each_message_of_a_script_goes_to_the_nodes_of_its_slot_only() -> None:
    for name in SCRIPTS:
        script = load_script(name)
        assert script.in_cluster is not None
        assert script.in_cluster.text.replace("'SPUBLISH'", "'PUBLISH'") == script.text
        assert "'PUBLISH'" not in script.in_cluster.text
        assert (script.in_cluster.sha == script.sha) is ("'PUBLISH'" not in script.text)


def test_in_a_cluster_the_message_of_a_release_goes_to_the_nodes_of_its_slot_only() -> None:
    one = ReleaseLock("a", "me").native(Dialect.VALKEY)
    node = sharded(one)
    assert [command[0] for command in one] == ["DELIFEQ", "PUBLISH"]
    assert [command[0] for command in node] == ["DELIFEQ", "SPUBLISH"]
    assert [command[1:] for command in one] == [command[1:] for command in node]
