"""What repeats get: the first one's result, its failure, or a word on why not. Rows F22 and F23 of the catalogue."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented.dedup import FailedBefore, ResultUnkept
from segmented.errors import InFlight, InvalidInput, OtherPayload, SegmentedError
from segmented.models.dedup import Freed, RecordState
from tests.support.contract.dedup.dedup_calls import Calls, Refused, Work, raising

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_f23_a_repeat_after_completion_gets_the_result_and_runs_nothing(side: Side) -> None:
    calls, work = Calls(side), Work()
    assert [calls.call("k", work) for _ in range(3)] == [1, 1, 1]
    assert work.done == 1


def test_a_result_is_kept_for_its_window_and_then_the_call_runs_again(side: Side) -> None:
    calls, work = Calls(side, keep=60), Work()
    assert (calls.call("k", work), calls.call("k", work)) == (1, 1)
    brief, work = Calls(side, keep=0.1), Work()
    assert brief.call("k", work) == 1
    side.pass_time(0.15)
    assert brief.call("k", work) == 2


def test_with_a_window_of_nothing_every_call_that_follows_runs(side: Side) -> None:
    calls, work = Calls(side, keep=0), Work()
    assert [calls.call("k", work) for _ in range(3)] == [1, 2, 3]


def test_keys_and_namespaces_keep_apart(side: Side) -> None:
    work, other = Work(), Calls(side)
    calls = Calls(side)
    assert [one.call(key, work) for one, key in ((calls, "a"), (calls, "b"), (other, "a"))] == [1, 2, 3]


def test_a_failure_is_not_kept_unless_that_is_asked_for(side: Side) -> None:
    calls, work = Calls(side), Work()
    with pytest.raises(Refused):
        calls.call("k", raising(Refused("no")))
    assert calls.call("k", work) == 1


def test_a_kept_failure_is_told_to_repeats_until_its_window_ends(side: Side) -> None:
    calls, work = Calls(side, keep_failures=60), Work()
    with pytest.raises(Refused, match="card 7"):
        calls.call("k", raising(Refused("card 7")))
    with pytest.raises(FailedBefore) as failure:
        calls.call("k", work)
    assert (failure.value.kind, failure.value.detail, work.done) == ("Refused", "card 7", 0)
    brief = Calls(side, keep_failures=0.1)
    with pytest.raises(Refused):
        brief.call("k", raising(Refused("card 7")))
    side.pass_time(0.15)
    assert brief.call("k", work) == 1


@pytest.mark.parametrize("result", [object(), "x" * 100, {1, 2}], ids=["no JSON", "too large", "a set"])
def test_a_result_that_cannot_be_kept_is_given_once_and_repeats_are_told(side: Side, result: object) -> None:
    calls = Calls(side, size_max=50)
    assert calls.call("k", lambda: result) is result
    work = Work()
    with pytest.raises(ResultUnkept, match="its result was not kept"):
        calls.call("k", work)
    assert work.done == 0


def test_f22_the_same_key_with_another_payload_is_refused(side: Side) -> None:
    calls, work = Calls(side), Work()
    assert calls.call("order-1", work, payload={"units": 2}) == 1
    with pytest.raises(OtherPayload):
        calls.call("order-1", work, payload={"units": 3})
    assert (calls.call("order-1", work, payload={"units": 2}), calls.call("order-1", work), work.done) == (1, 1, 1)


def test_f22_another_payload_is_refused_also_while_the_first_is_in_flight(side: Side) -> None:
    calls = Calls(side)
    with calls.run("k", payload=1):
        with pytest.raises(OtherPayload):
            calls.begin("k", payload=2)
        with pytest.raises(InFlight):
            calls.begin("k", payload=1)


def test_in_flight_says_who_has_the_key_and_for_how_long(side: Side) -> None:
    calls = Calls(side, ttl=100)
    with calls.run("k") as run:
        with pytest.raises(InFlight) as refused:
            calls.begin("k")
        error = refused.value
        assert (error.message_id, error.state) == (run.message_id, "running")
        assert error.free_in is not None
        assert 80 < error.free_in <= 100
        assert "is taken" in str(error)


def test_a_replay_says_whose_it_is_and_how_old_and_its_with_statement_does_nothing(side: Side) -> None:
    calls = Calls(side)
    with calls.run("k") as run:
        run.finish({"paid": True})
    side.pass_time(0.2)
    with calls.replay("k") as replay:
        assert replay.result == {"paid": True}
    assert (replay.message_id, 0.2 <= replay.age < 30) == (run.message_id, True)
    assert "paid" not in repr(replay)


def test_read_tells_the_state_and_free_forgets_it(side: Side) -> None:
    calls = Calls(side)
    assert calls.read("k") is None
    calls.call("k", lambda: 7)
    state = calls.read("k")
    assert isinstance(state, RecordState)
    assert state.outcome is not None
    assert (state.task, state.outcome.kind, state.outcome.body) == (calls.namespace, "value", "7")
    assert calls.free("k") == Freed("done", state.outcome.message)
    work = Work()
    assert (calls.call("k", work), work.done) == (1, 1)


def test_errors_survive_being_pickled() -> None:
    errors = [
        InFlight("k", "m", "running", 1.5),
        OtherPayload("k", "m"),
        FailedBefore("k", "ValueError", "no"),
        ResultUnkept("k", "too large"),
    ]
    for error in errors:
        copy: SegmentedError = pickle.loads(pickle.dumps(error))  # noqa: S301  # made here
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


BAD_SETTINGS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"keep": -1}, "keep of -1 s is not a duration"),
    ({"keep_failures": -0.5}, "keep_failures of -0.5 s is not a duration"),
    ({"keep": float("nan")}, "keep of nan s"),
    ({"keep": "a day"}, "keep is a number of seconds or a timedelta, not str: 'a day'"),
    ({"ttl": 0}, "ttl of 0 s is not a duration"),
    ({"size_max": 0}, "size_max of 0 is not a number of bytes"),
    ({"dump": None}, "dump and load are callables"),
    ({"namespace": "n" * 101}, "the namespace of deduplication has 101 characters"),
    ({"namespace": "a\nb"}, "the name of a namespace of deduplication holds characters that cannot be printed"),
]


def test_bad_settings_are_refused_in_one_sentence(side: Side) -> None:
    for options, sentence in BAD_SETTINGS:
        with pytest.raises(InvalidInput) as refused:
            Calls(side, **options)
        assert sentence in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_key_that_is_none_is_refused_and_nothing_is_begun(side: Side) -> None:
    keys: list[Any] = ["", "k" * 256, "a\0b", 7, None]
    for key in keys:
        with pytest.raises(InvalidInput, match="an idempotency key is a text of 1 to 255 characters"):
            Calls(side).begin(key)


def test_a_wait_that_is_none_is_refused_and_nothing_is_begun(side: Side) -> None:
    calls = Calls(side)
    for wait in (-1, float("nan"), "soon"):
        with pytest.raises(InvalidInput, match=r"is not a waiting time|is a number of seconds"):
            calls.begin("k", timeout=wait)
    assert calls.read("k") is None


def test_a_payload_that_has_no_text_is_refused_and_nothing_is_begun(side: Side) -> None:
    calls = Calls(side)
    with pytest.raises(InvalidInput, match=r"the payload\['a'\] is object, which has no text"):
        calls.begin("k", payload={"a": object()})
    assert calls.read("k") is None
