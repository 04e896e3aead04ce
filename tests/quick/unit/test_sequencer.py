"""Sequencers as texts, and the keys of values written under tokens."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st
from redis.crc import key_slot

from segmented.errors import InvalidInput
from segmented.keys import fenced_keys
from segmented.locks.sequencer import TOKEN_MAX, Sequencer

NAMES = st.text(min_size=1, max_size=60).filter(str.isprintable)


def test_a_sequencer_names_mode_lock_and_generation() -> None:
    assert str(Sequencer("stock:a b/ü", "exclusive", 17)) == "v1:exclusive:stock%3Aa%20b%2F%C3%BC:17"
    assert Sequencer.parse("v1:shared:catalogue:18") == Sequencer("catalogue", "shared", 18)


@given(NAMES, st.sampled_from(["exclusive", "shared"]), st.integers(1, TOKEN_MAX))
def test_what_is_written_is_read_back(name: str, mode: str, token: int) -> None:
    sequencer = Sequencer(name, mode, token)  # type: ignore[arg-type]  # one of the two
    assert Sequencer.parse(str(sequencer)) == sequencer


@pytest.mark.parametrize("length", [1, 1_024])
def test_the_longest_name_has_a_sequencer(length: int) -> None:
    sequencer = Sequencer("票" * length, "exclusive", TOKEN_MAX)
    assert Sequencer.parse(str(sequencer)) == sequencer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1:exclusive:name",
        "v1:exclusive::7",
        "v2:exclusive:name:7",
        "v1:both:name:7",
        "v1:exclusive:name:0",
        "v1:exclusive:name:07",
        "v1:exclusive:name:-7",
        "v1:exclusive:name:9223372036854775808",
        "v1:exclusive:name:7 ",
        "v1:exclusive:name:7\n",
        "v1:exclusive:name:\u0667",
        "v1:exclusive:na me:7",
        "v1:exclusive:na:me:7",
        "v1:exclusive:%6eame:7",
        "v1:exclusive:%ff:7",
        "v1:exclusive:%0A:7",
        "v1:exclusive:%:7",
        f"v1:exclusive:{'a' * 1_025}:7",
    ],
)
def test_what_no_lease_has_given_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Sequencer.parse(text)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_a_refusal_shows_the_text_and_what_it_should_look_like() -> None:
    with pytest.raises(
        InvalidInput, match=r"^'7' is not a sequencer: the forms are v1:exclusive:NAME:TOKEN or v1:shared:"
    ):
        Sequencer.parse("7")
    with pytest.raises(InvalidInput, match=r"^b'v1:shared:a:7' is not a sequencer"):
        Sequencer.parse(b"v1:shared:a:7")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("token", [0, -1, True, 1.5, "7", None, 2**63])
def test_what_is_no_token_is_refused(token: object) -> None:
    with pytest.raises(InvalidInput, match=r"is not a fencing token: give a whole number of 1 or more$"):
        Sequencer("name", "exclusive", token)  # type: ignore[arg-type]  # what is tested


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^a sequencer's mode is exclusive or shared, not 'both'$"):
        Sequencer("name", "both", 7)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("key", ["account:7", "{account}:7", "a{b}c{d}", "x{y}}", "}{a}", "ü"])
def test_a_value_and_its_fence_are_in_one_hash_slot(key: str) -> None:
    keys = fenced_keys(key)
    assert keys.value == key
    assert keys.fence != key
    assert key_slot(keys.value.encode()) == key_slot(keys.fence.encode())


@given(st.lists(st.text("a{}:", min_size=1, max_size=5).flatmap(lambda key: st.sampled_from([key, f"{key}:fence"]))))
def test_no_two_values_have_a_key_in_common(keys: list[str]) -> None:
    taken: list[str] = []
    for key in set(keys):
        with suppress(InvalidInput):
            taken += fenced_keys(key).listed()
    assert sorted(taken) == sorted(set(taken))


@pytest.mark.parametrize("key", ["", "{", "}", "a}b", "a{b", "{}a", "{a}", "{a}:fence", "x{a}:fence"])
def test_a_key_without_a_fence_of_its_own_in_its_slot_is_refused(key: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"is empty, has braces that are not a hash tag beside other text, or ends as a fence$"
    ):
        fenced_keys(key)
