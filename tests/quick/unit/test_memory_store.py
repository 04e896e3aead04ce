"""What a store in memory is made of: the small Redis, and the package that runs it."""

from __future__ import annotations

import sys

import pytest
from redis.exceptions import ResponseError

from segmented.clock import ManualClock
from segmented.errors import InvalidInput
from segmented.stores.memory.model import Engine, MemoryModel


def test_without_lua_a_store_in_memory_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    with pytest.raises(InvalidInput, match=r"needs the package lupa: pip install '\.\[testing\]' in the checkout"):
        Engine()


@pytest.mark.parametrize("text", ["found = 1", "return found"], ids=["written", "read"])
def test_a_script_neither_writes_nor_reads_a_global(text: str) -> None:
    model = MemoryModel(ManualClock())
    refused = model.ask("EVAL", f"#!lua\n{text}\n", 0)
    assert isinstance(refused, ResponseError)
    assert "global variable 'found'" in str(refused) or "readonly table" in str(refused)


def test_time_stands_still_during_a_script_and_is_the_clocks() -> None:
    clock = ManualClock(12.000_345)
    assert MemoryModel(clock).ask("TIME") == [b"12", b"345"]


def test_a_key_ends_at_its_millisecond() -> None:
    clock = ManualClock()
    model = MemoryModel(clock)
    model.ask("SET", "k", "v", "PX", 50)
    clock.advance(0.049)
    assert (model.ask("GET", "k"), model.ask("PTTL", "k")) == (b"v", 1)
    clock.advance(0.001)
    assert (model.ask("GET", "k"), model.ask("PTTL", "k")) == (None, -2)
