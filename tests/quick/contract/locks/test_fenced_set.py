"""A value in Redis that refuses a token lower than the highest that has written it; and the same in a user's script."""

import re

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, WrongKind
from segmented.keys import fenced_keys
from segmented.locks.fencing import async_fenced_set, fenced_set
from segmented.models import Standing
from tests.fixtures.stores import Side
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "how-to" / "check-a-fencing-token.md"


pytestmark = pytest.mark.own_keys

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


@pytest.mark.parametrize("token", [0, -1, True])
def test_what_is_no_token_is_refused_and_nothing_is_written(side: Side, token: int) -> None:
    key = side.name("account")
    with pytest.raises(InvalidInput, match="is not a fencing token"):
        write(side, key, "x", token)
    write(side, key, "x", 1)


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
