"""Two calls are one exactly when their arguments are equal and of the same types, in every process."""

import json
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given, settings, strategies as st

from segmented.dedup.identity import CallIdentity, canonical, digest, explicit_key
from segmented.errors import InvalidInput
from segmented.models.ids import is_unseen

FEW = settings(max_examples=30)
CLOSE = st.text(alphabet='ab1_-,"[]{}:\\ é\n', max_size=4)
"""Few characters, those of JSON among them, so that texts often meet."""
LOOKALIKES = [1, True, 1.0, "1", "1.0", "true", "True", None, "null", 0, False, 0.0, "", b"1", b"", "list", "MQ=="]
"""Some of which are equal in Python, and none of which is another one's twin."""
SCALARS = st.one_of(
    st.sampled_from(LOOKALIKES), st.integers(-3, 3), st.floats(-3, 3, width=16), CLOSE, st.binary(max_size=2)
)
TAGS = st.sampled_from(["list", "dict", "set", "bytes", "enum", "a"])
VALUES = st.recursive(
    SCALARS | TAGS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(CLOSE | TAGS, inner, max_size=3)),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Are they equal and of the same types, all the way down?"""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


@FEW
@given(one=VALUES, other=VALUES)
def test_two_values_have_the_same_text_exactly_when_they_are_the_same(one: object, other: object) -> None:
    assert (canonical(one, "one") == canonical(other, "other")) == same(one, other)


@FEW
@given(value=VALUES)
def test_a_value_looks_like_nothing_that_its_text_could_be_read_as(value: object) -> None:
    text = canonical(value, "it")
    read = json.loads(text)
    if not same(read, value):
        assert canonical(read, "it") != text
    assert canonical(text, "it") != text


@FEW
@given(value=VALUES)
def test_a_copy_that_json_made_is_the_same_call(value: object) -> None:
    try:
        copy = json.loads(json.dumps(value))
    except TypeError:  # bytes
        return
    assert canonical(copy, "it") == canonical(value, "it")


class Paint(Enum):
    RED = 1


class Wine(Enum):
    RED = 1


def test_members_of_two_enumerations_durations_and_bytes_are_told_apart() -> None:
    values = [Paint.RED, Wine.RED, timedelta(days=1), timedelta(days=2), b"ab", b"ba", timedelta(seconds=1)]
    assert len({canonical(value, "it") for value in values}) == len(values)


def task(a: object, b: object = None, *rest: object, c: object = None, **more: object) -> None:
    """Have every kind of argument."""


def key(*arguments: object, **options: object) -> str:
    return CallIdentity("scope", task).of(arguments, options).key


@FEW
@given(one=st.tuples(VALUES, VALUES, VALUES), other=st.tuples(VALUES, VALUES, VALUES))
def test_two_calls_share_a_key_exactly_when_their_arguments_are_the_same(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    keys = [key(a, b, c=c) for a, b, c in (one, other)]
    assert (keys[0] == keys[1]) == same(list(one), list(other))


@FEW
@given(a=VALUES, b=VALUES, c=VALUES)
def test_a_call_has_one_key_by_position_and_by_name(a: object, b: object, c: object) -> None:
    assert key(a, b, c=c) == key(a, b=b, c=c) == key(c=c, b=b, a=a)
    assert key(a) == key(a, None) == key(a=a, c=None)
    assert key(a, b, c) != key(a, b, c=c)
    assert key(a, b, d=c) != key(a, b, c=c)


@FEW
@given(one=st.lists(CLOSE, min_size=1, max_size=3), other=st.lists(CLOSE, min_size=1, max_size=3))
def test_f25_arguments_cannot_be_moved_across_their_border(one: list[str], other: list[str]) -> None:
    assert (key(*one) == key(*other)) == ([*one, *[None] * (2 - len(one))] == [*other, *[None] * (2 - len(other))])


@FEW
@given(a=VALUES, b=VALUES)
def test_parts_of_an_expression_cannot_be_moved_across_their_border(a: object, b: object) -> None:
    made = CallIdentity("scope", task, key="{a}-{b}")
    assert (made.of((a, b), {}).key == made.of((b, a), {}).key) == same(a, b)


@FEW
@given(value=VALUES, scopes=st.lists(CLOSE, min_size=2, max_size=2, unique=True))
def test_two_scopes_share_no_key(value: object, scopes: list[str]) -> None:
    assert len({CallIdentity(scope, task).of((value,), {}).key for scope in scopes}) == 2
    assert len({explicit_key(scope, "k") for scope in scopes}) == 2


@FEW
@given(
    text=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=255).filter(
        lambda text: not is_unseen(text)
    )
)
def test_a_given_key_is_never_that_of_an_expression(text: str) -> None:
    made = CallIdentity("scope", task, key="{a}")
    assert made.of((text,), {}).key != made.of((text,), {}, given=text).key


class Colour(Enum):
    RED = 1
    BLUE = 2


def test_a_key_stays_what_it_was_in_an_earlier_version() -> None:
    """A release that changes these runs again what is kept under the old ones; so would a hash seed that matters."""
    sets = {"b": {"x", "y", "z"}, "c": frozenset({1, 2}), "d": Colour.RED}
    assert digest(canonical(sets, "it")) == "55b96ffed399a02913bce49bbb2edb04"
    assert digest(canonical({"a": [1, "1", 1.5, True, None]}, "it")) == "4832be3b2c054c8305f3d6af9dd05472"
    assert CallIdentity("shop.charge", task).of((1, "2"), {}).key == "d3cb966cc044c9b963260b3f44b93006"


def test_zero_and_minus_zero_are_one() -> None:
    assert canonical(-0.0, "it") == canonical(0.0, "it")
    assert canonical((1, 2), "it") == canonical([1, 2], "it")


def nested(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = ()
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (math.inf, "it is inf, which equals nothing"),
        (Decimal("NaN"), "it is Decimal\\('NaN'\\), which equals nothing"),
        (2**4096, "it is a whole number of more than 4096 bits"),
        (nested(100, lambda value: [value]), "is nested deeper than 64 levels"),
        (nested(100, lambda value: frozenset([value])), "is nested deeper than 64 levels"),
        ({1: 2}, "it has the key 1, which is not a text"),
        ({"a": [1, object()]}, r"it\['a'\]\[1\] is object, which has no text"),
        (iter(()), "it is tuple_iterator, which has no text"),
        (Colour, "it is EnumType, which has no text"),
    ],
)
def test_a_value_without_a_text_is_refused_in_one_sentence(value: object, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as refused:
        canonical(value, "it")
    assert "\n" not in str(refused.value)


def test_sets_in_sets_take_no_longer_for_being_deep() -> None:
    """A text in a text in a text would double its escapes at each level."""
    texts = {canonical(nested(depth, lambda value: frozenset([value])), "it") for depth in range(60)}
    assert (len(texts), max(map(len, texts))) == (60, len('["set","0123456789abcdef0123456789abcdef"]'))


def test_a_list_that_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(InvalidInput, match="or holds itself"):
        canonical(ring, "it")
