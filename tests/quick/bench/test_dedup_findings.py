"""How a case's counts become an outcome, on journals and findings written here."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import InvalidInput
from tests.conformance.dedup.comparison import compare, judged
from tests.conformance.dedup.context import Finding, at_once
from tests.conformance.dedup.registry import WHY_NOT, Row
from tests.conformance.dedup.settings import Entry

if TYPE_CHECKING:
    from tests.conformance.dedup.context import BenchContext


def nothing(_: BenchContext) -> Finding:
    raise NotImplementedError


def journal(*events: str) -> list[Entry]:
    return [
        Entry(event=event, key="order-1", run="", attempt=0, pid=1, at=at)
        for event, at in zip(events, itertools.count(1.0), strict=False)
    ]


def test_runs_at_the_same_time_are_counted_from_the_journal() -> None:
    cases: list[tuple[int, list[str]]] = [
        (0, []),
        (1, ["began", "effect", "ended"]),
        (1, ["began", "ended", "began", "ended"]),
        (1, ["began", "retry", "began", "ended"]),
        (2, ["began", "began", "ended", "began"]),
        (3, ["began", "held", "began", "began"]),
    ]
    assert [at_once(journal(*events)) for _, events in cases] == [most for most, _ in cases]


def found(*, held: bool | None) -> dict[str, Any]:
    return {"held": held, "evidence": "2 runs of 1 order", "seconds": 1.0}


def test_what_holds_passes_and_a_case_that_could_not_run_is_no_result() -> None:
    row = Row("F0", "it holds", nothing, ("key",))
    for offers in (frozenset[str](), frozenset({"key"})):
        assert judged(row, offers, found(held=True)) == {**found(held=True), "outcome": "passes", "why": ""}
        assert judged(row, offers, found(held=None))["outcome"] == "not run"


def test_what_does_not_hold_fails_only_those_who_offer_it_and_keeps_the_count() -> None:
    row, broken = Row("F0", "it holds", nothing, ("key",)), found(held=False)
    assert judged(row, frozenset({"key"}), broken) == {**broken, "outcome": "fails", "why": ""}
    assert judged(row, frozenset(), broken) == {**broken, "outcome": "not offered", "why": WHY_NOT["key"]}


def test_the_first_thing_that_is_lacking_is_the_reason() -> None:
    row, broken = Row("F0", "it holds", nothing, ("key", "handle")), found(held=False)
    why = [judged(row, offers, broken)["why"] for offers in (frozenset[str](), frozenset({"key"}))]
    assert why == [WHY_NOT["key"], WHY_NOT["handle"]]
    assert judged(Row("F0", "it holds", nothing), frozenset(), broken)["outcome"] == "fails"


def test_a_name_that_is_none_is_refused() -> None:
    for only, cases, what in ((["nobody"], [], "contender 'nobody'"), ([], ["F99"], "case 'F99'")):
        with pytest.raises(InvalidInput, match=f"^there is no {what}: "):
            compare(only=only, cases=cases, python_of=lambda _: pytest.fail("nothing is to be run"), tell=print)
