"""A value in Redis that refuses a token lower than the highest that has written it; and the same in a user's script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, StaleToken, WrongKind
from segmented.keys import fenced_keys
from segmented.locks.checks import async_fenced_set, fenced_set
from segmented.models import Standing
from tests.support.contract.bodies import let_lapse
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


pytestmark = pytest.mark.own_keys

PAGE = ROOT / "docs" / "how-to" / "check-a-fencing-token.md"
BEYOND_A_DOUBLE = 2**53 + 1


def write(side: Side, key: str, value: str, token: int) -> None:
    if side.flavour.colour == "async":
        side.wait(async_fenced_set(side.store, key, value, token=token))  # type: ignore[attr-defined]  # of the asynchronous side
    else:
        fenced_set(side.store, key, value, token=token)


def test_a_lower_token_is_refused_and_an_equal_one_is_the_same_holder(side: Side) -> None:
    key = side.name("account")
    for token in (5, 5, 7):
        assert side.execute(op.FencedSet(key, "x", token)) == Standing(token, is_good=True)
    assert side.execute(op.FencedSet(key, "y", 6)) == Standing(7, is_good=False)
    assert side.execute(op.FencedSet(side.name("account"), "y", 6)) == Standing(6, is_good=True)


@pytest.mark.parametrize(
    ("lower", "higher"), [(9, 10), (99, 100), (BEYOND_A_DOUBLE - 1, BEYOND_A_DOUBLE), (2**63 - 2, 2**63 - 1)]
)
def test_tokens_are_compared_as_numbers_and_to_the_last_digit(side: Side, lower: int, higher: int) -> None:
    key = side.name("account")
    assert side.execute(op.FencedSet(key, "x", higher)).is_good
    assert side.execute(op.FencedSet(key, "x", lower)) == Standing(higher, is_good=False)


def test_the_value_is_a_plain_one_and_stays_as_it_was_when_refused(redis_side: Side) -> None:
    key = redis_side.name("account {7}")
    write(redis_side, key, "rich, ü", 7)
    with pytest.raises(StaleToken, match=f"^fencing token 6 is too old for '{re.escape(key)}', which has seen 7$"):
        write(redis_side, key, "poor", 6)
    assert redis_side.raw().get(key) == "rich, ü"
    assert redis_side.raw().get(fenced_keys(key).fence) == "7"
    assert redis_side.raw().pttl(key) == -1


def test_an_overslept_holder_is_refused_once_its_successor_has_written(side: Side) -> None:
    name, key = side.name("lock"), side.name("account")
    overslept = side.lock(name, ttl=60).acquire(timeout=30)
    let_lapse(side, overslept)
    with side.lock(name, ttl=60).acquire(timeout=30) as successor:
        write(side, key, "new", successor.fencing_token)
        with pytest.raises(StaleToken):
            write(side, key, "old", overslept.fencing_token)


@pytest.mark.parametrize("token", [0, -1, True])
def test_what_is_no_token_is_refused_and_nothing_is_written(side: Side, token: int) -> None:
    key = side.name("account")
    with pytest.raises(InvalidInput, match="is not a fencing token"):
        write(side, key, "x", token)
    write(side, key, "x", 1)


def test_a_key_without_a_common_slot_is_refused(side: Side) -> None:
    with pytest.raises(InvalidInput, match="braces that are not a hash tag"):
        write(side, "a}b", "x", 1)


def test_a_fence_that_is_something_else_is_told_apart_and_nothing_is_written(plain_redis_side: Side) -> None:
    key = plain_redis_side.name("account")
    plain_redis_side.raw().hset(fenced_keys(key).fence, "a", "b")
    with pytest.raises(WrongKind):
        write(plain_redis_side, key, "x", 1)
    assert plain_redis_side.raw().get(key) is None


def test_the_lines_for_a_script_of_ones_own_do_as_the_page_says(plain_redis_side: Side) -> None:
    server, key = plain_redis_side.raw(), plain_redis_side.name("stock")
    found = re.search(r"^```lua\n(?P<script>.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    script = server.register_script(found["script"])
    keys = [key, fenced_keys(key).fence]
    server.set(key, 10)
    assert script(keys=keys, args=[5, 3]) == 7
    assert script(keys=keys, args=[5, 1]) == 6
    assert script(keys=keys, args=[9, 1]) == 5
    for stale in (4, 5, 8):
        assert script(keys=keys, args=[stale, 1]) == "stale 9"
    assert script(keys=keys, args=[BEYOND_A_DOUBLE, 1]) == 4
    assert script(keys=keys, args=[BEYOND_A_DOUBLE - 1, 1]) == f"stale {BEYOND_A_DOUBLE}"
    assert server.get(key) == "4"
