"""Calls that must not be made twice: after a death or an error it is unknown whether one was made."""

from typing import Any

import pytest

from segmented import MemoryStore
from segmented.clock import ManualClock
from segmented.dedup import Dedup, EffectUnknown
from segmented.errors import InvalidInput
from segmented.models.dedup import Freed
from tests.fixtures.stores import Side
from tests.support.contract.dedup.dedup_calls import Calls, Refused, Work, raising


def made(side: Side, **options: Any) -> Calls:  # noqa: ANN401  # those of Dedup
    return Calls(side, on_crash="unknown", **options)


def is_settled(calls: Calls, key: str, result: object) -> bool:
    return bool(calls.side.made(lambda _: calls.target, lambda _: calls.target).settle(key, result))


def test_an_error_in_the_call_makes_the_key_unknown_at_once(side: Side) -> None:
    calls, work = made(side), Work()
    with pytest.raises(Refused):
        calls.call("a", raising(Refused()))
    for _ in range(2):
        with pytest.raises(EffectUnknown):
            calls.call("a", work)
    assert work.done == 0


def test_a_call_does_not_wait_for_what_only_a_human_can_end() -> None:
    clock = ManualClock(auto=True)
    dedup = Dedup(MemoryStore(clock=clock), "n", on_crash="unknown")
    with pytest.raises(Refused):
        dedup.call("a", raising(Refused()))
    before = clock.now()
    with pytest.raises(EffectUnknown):
        dedup.call("a", Work(), timeout=60)
    assert clock.now() == before


def test_a_call_that_abandons_its_run_leaves_the_key_free(side: Side) -> None:
    calls, work = made(side), Work()
    calls.run("a").abandon()
    assert calls.call("a", work) == 1


def test_an_unknown_key_is_settled_as_made_with_a_result_or_freed_as_not_made(side: Side) -> None:
    calls, work = made(side), Work()
    assert not is_settled(calls, "a", "sms-1"), "nothing is unknown"
    for key in ("a", "b"):
        with pytest.raises(Refused):
            calls.call(key, raising(Refused()))
    assert is_settled(calls, "a", "sms-1")
    assert calls.call("a", work) == "sms-1"
    freed = calls.free("b")
    assert freed == Freed("unknown", freed.message)
    assert (calls.call("b", work), work.done) == (1, 1)


def test_a_wrong_choice_is_one_sentence() -> None:
    with pytest.raises(InvalidInput) as caught:
        Dedup(MemoryStore(), "n", on_crash="never")  # type: ignore[arg-type]  # that is the test
    assert str(caught.value) == (
        'on_crash is \'never\': give "again", or "unknown" for a call that must not be made twice'
    )
