"""Runs as `with` statements: how they end, in every way a body can, and who may still speak for the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import Dedup
from segmented.clock import ManualClock
from segmented.dedup import FailedBefore, ResultUnkept, RunLost, StoreEffect
from segmented.errors import InFlight, InvalidInput, LeaseLost, StaleToken, StoreRefused
from segmented.locks import async_fenced_set, fenced_set
from segmented.stores.memory import MemoryStore
from tests.fixtures.stores import AsyncSide
from tests.support.contract.dedup.dedup_calls import Calls, Refused

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_a_body_that_says_nothing_is_finished_with_none(side: Side) -> None:
    calls = Calls(side)
    with calls.run("k"):
        pass
    assert calls.replay("k").result is None


def test_a_body_that_raises_leaves_the_key_free(side: Side) -> None:
    calls = Calls(side)
    with pytest.raises(Refused), calls.run("k"):
        raise Refused
    calls.run("k").abandon()


def test_a_body_that_raises_is_kept_as_a_failure_where_that_was_asked_for(side: Side) -> None:
    calls = Calls(side, keep_failures=60)
    with pytest.raises(Refused), calls.run("k"):
        raise Refused(7)
    with pytest.raises(FailedBefore, match="Refused: 7"):
        _ = calls.replay("k").result


def test_what_raises_after_the_finish_changes_nothing(side: Side) -> None:
    calls = Calls(side, keep_failures=60)
    with pytest.raises(Refused), calls.run("k") as run:  # noqa: PT012  # the body is what is tested
        run.finish(7)
        raise Refused
    assert calls.replay("k").result == 7


def test_a_run_has_one_outcome(side: Side) -> None:
    calls = Calls(side)
    run = calls.run("k")
    run.finish(1)
    with pytest.raises(InvalidInput, match="has ended already; it has one outcome"):
        run.finish(2)
    run.abandon()
    assert calls.replay("k").result == 1


def test_a_freed_run_is_lost_and_cannot_keep_its_outcome(side: Side) -> None:
    calls = Calls(side)
    with pytest.raises(RunLost, match="is lost, and its outcome not kept"), calls.run("k") as run:  # noqa: PT012  # the body is what is tested
        calls.free("k")
        run.finish("late")
    assert run.is_lost
    assert calls.read("k") is None or calls.read("k").outcome is None


def test_an_error_of_the_body_is_not_hidden_by_the_loss_of_its_run(side: Side) -> None:
    calls = Calls(side, keep_failures=60)
    with pytest.raises(Refused) as failure, calls.run("k"):  # noqa: PT012  # the body is what is tested
        calls.free("k")
        raise Refused
    assert ["is lost" in note for note in failure.value.__notes__] == [True]


def lapsed(calls: Calls) -> Any:  # noqa: ANN401  # a Run of either colour
    """Return a run that was not renewed, and whose lease has lapsed: its process stood still."""
    run = calls.run("k")
    state = getattr(run, "_target", run)
    state._renew_at = state._renew_until = -float("inf")  # noqa: SLF001  # as a process that stands still
    state.note_release_asked()
    state._releases_asked = 0  # noqa: SLF001  # as above
    calls.side.execute(state.claim.renewing(1))
    state.trusted_until = calls.side.clock.now()
    calls.side.pass_time(0.01)
    return run


def test_a_run_whose_lease_lapsed_and_that_nobody_took_is_still_finished(side: Side) -> None:
    calls = Calls(side)
    lapsed(calls).finish(7)
    assert calls.replay("k").result == 7


def test_an_overtaken_run_is_told_and_the_outcome_is_that_of_the_newer(side: Side) -> None:
    calls = Calls(side)
    older = lapsed(calls)
    newer = calls.run("k")
    assert newer.fencing_token > older.fencing_token
    with pytest.raises(RunLost):
        older.finish("older")
    newer.finish("newer")
    assert calls.replay("k").result == "newer"


def test_an_overtaken_run_cannot_abandon_the_newer_one(side: Side) -> None:
    calls = Calls(side)
    older = lapsed(calls)
    newer = calls.run("k")
    with pytest.raises(LeaseLost):
        older.abandon()
    with pytest.raises(InFlight):
        calls.begin("k")
    newer.finish(1)


@pytest.mark.own_keys
def test_what_an_overtaken_body_writes_is_refused_by_its_token(plain_redis_side: Side) -> None:
    calls = Calls(plain_redis_side)
    older = lapsed(calls)
    newer = calls.run("k")
    resource = plain_redis_side.name("balance")

    def write(run: Any, value: str) -> None:  # noqa: ANN401  # a Run of either colour
        if isinstance(plain_redis_side, AsyncSide):
            plain_redis_side.wait(async_fenced_set(plain_redis_side.store, resource, value, token=run.fencing_token))
        else:
            fenced_set(plain_redis_side.store, resource, value, token=run.fencing_token)

    write(newer, "newer")
    with pytest.raises(StaleToken):
        write(older, "older")
    newer.finish(1)


# --- effects in the store ---

ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


def points(run: Any) -> str:  # noqa: ANN401  # as above
    return f"points:{run.hash_tag}"


@pytest.mark.own_keys
def test_an_effect_that_fails_frees_the_key_at_the_end_of_the_body(plain_redis_side: Side) -> None:
    calls = Calls(plain_redis_side)
    with pytest.raises(StoreRefused), calls.run("k") as run:
        run.finish_with(StoreEffect("return redis.call('INCRBY', KEYS[1], 'x')", keys=[points(run)]))
    calls.run("k").abandon()


@pytest.mark.own_keys
@pytest.mark.parametrize("given", [r"\255\254", r"\224\194\160\160\160", r"\237\160\128", r"\192\128", r"ab\195"])
def test_what_an_effect_gave_and_nobody_could_read_is_not_kept_and_blocks_nobody(
    plain_redis_side: Side, given: str
) -> None:
    calls = Calls(plain_redis_side)
    with calls.run("k") as run:
        assert run.finish_with(StoreEffect(f"redis.call('INCR', KEYS[1]) return '{given}'", keys=[points(run)])) is None
    assert plain_redis_side.raw().get(points(run)) == "1"
    with pytest.raises(ResultUnkept, match="not valid UTF-8"):
        _ = calls.replay("k").result
    assert calls.read("k").outcome.kind == "unkept"


def test_an_effect_with_a_command_unknown_to_memory_is_refused_and_frees_the_key() -> None:
    dedup = Dedup(MemoryStore(), "n")
    with pytest.raises(StoreRefused, match="Unknown Redis command"), dedup.begin("k") as run:
        run.finish_with(StoreEffect("return redis.call('GEOADD', KEYS[1], 1, 2, 'x')"))  # type: ignore[union-attr]  # no replay
    dedup.begin("k").abandon()  # type: ignore[union-attr]  # as above


# --- the store forgets, the process forks, the task is cancelled ---


def test_a_store_that_forgot_everything_in_the_middle_refuses_the_outcome(plain_redis_side: Side) -> None:
    """Row F16: it does not know what else it forgot, so it keeps nothing of a run that it never heard of."""
    calls = Calls(plain_redis_side)
    with pytest.raises(RunLost), calls.run("k") as run:  # noqa: PT012  # the body is what is tested
        for key in plain_redis_side.raw().scan_iter(match=f"*{run.hash_tag}*"):
            plain_redis_side.raw().delete(key)
        run.finish(1)
    assert calls.run("k").fencing_token > run.fencing_token


def test_a_begin_whose_answer_takes_longer_than_its_lease_is_given_back() -> None:
    class Slow(MemoryStore):
        """Answers a beginning only after a while."""

        def execute(self, operation: Any, *, deadline: float = float("inf")) -> Any:  # noqa: ANN401  # of any operation
            answer = super().execute(operation, deadline=deadline)
            if type(operation).__name__ == "BeginRun" and self.is_slow:
                clock.advance(29.9)  # the server counts to 30, its holder not quite
            return answer

        is_slow = True

    clock = ManualClock()
    store = Slow(clock=clock)
    dedup = Dedup(store, "n", ttl=30)
    with pytest.raises(RunLost):
        dedup.begin("k")
    store.is_slow = False
    assert not dedup.begin("k").is_replay
