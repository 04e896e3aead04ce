"""Sentences with a count: a noun and its verb are in the singular for 1."""

from __future__ import annotations

import pytest

from segmented.models import LimitReached, SoldOut
from segmented.models.ids import counted, plural


@pytest.mark.parametrize(
    ("words", "many"),
    [
        (("unit", "is"), "units are"),
        (("order", "was"), "orders were"),
        (("dead order", "keeps"), "dead orders keep"),
        (("shard", "has"), "shards have"),
        (("rule", "does"), "rules do"),
        (("entry",), "entries"),
        (("retry",), "retries"),
        (("day",), "days"),
    ],
)
def test_words_are_in_the_singular_for_one_and_in_the_plural_for_every_other_number(
    words: tuple[str, ...], many: str
) -> None:
    assert [plural(number, *words) for number in (0, 1, 2)] == [many, " ".join(words), many]


def test_a_number_has_its_thousands_separated() -> None:
    assert [counted(number, "unit") for number in (0, 1, 2_000)] == ["0 units", "1 unit", "2,000 units"]


def test_answers_with_one_unit_say_unit() -> None:
    assert SoldOut("a", 2, 1, 0, 7).describe() == "sold out (1 unit free, 0 on hold, 2 asked for)"
    assert SoldOut("a", 2, 0, 0, 7).describe() == "sold out (0 units free, 0 on hold, 2 asked for)"
    limited = LimitReached("a", 1, "ann", 1, 1).describe()
    assert limited == "customer 'ann' has 1 of the limit of 1 unit, and asks for 1 more"
