"""Calls that run once: decorated, repeated, and their runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pytest

from segmented import AsyncDedup, Dedup
from segmented.clock import ManualClock
from segmented.dedup import FailedBefore, ResultUnkept, RunLost, StoreEffect
from segmented.errors import InvalidInput, OtherPayload, StaleToken, StoreRefused
from segmented.locks import async_fenced_set, fenced_set
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import AsyncSide, Side
from tests.support.contract.dedup.dedup_calls import Calls, Refused, Work, raising


@dataclass(frozen=True)
class Order:
    id: str
    units: int = 1


def test_calls_with_equal_arguments_are_one_however_they_are_given(side: Side) -> None:
    work = Work()

    def charge(order: str, units: int = 1, *, currency: str = "EUR") -> int:
        return work(order, units, currency)

    once = Calls(side).once(charge)
    assert [once("7"), once("7", 1), once(order="7", currency="EUR"), once("7", units=1)] == [1, 1, 1, 1]
    assert [once("7", 2), once(7), once("7", currency="USD"), once("7", units=True)] == [2, 3, 4, 5]


def test_an_argument_without_a_text_form_is_not_compared_where_a_key_is_named(side: Side) -> None:
    work = Work()

    class Shop:
        def pay(self, order: str, cents: int) -> int:
            return work(order, cents)

    def charge(order: str, card: object) -> int:
        return work(order, card)

    pay = Calls(side).once(Shop.pay, "{order}")
    assert (pay(Shop(), "7", 5), pay(Shop(), "7", 5)) == (1, 1)
    with pytest.raises(OtherPayload):
        pay(Shop(), "7", 6)
    for card in (object(), {"client": object()}):
        with pytest.raises(InvalidInput, match=r"argument 'card'.* has no text form"):
            Calls(side).once(charge, "{order}")("7", card)
    with pytest.raises(InvalidInput, match=r"argument 'self' of .* has no text form"):
        Calls(side).once(Shop.pay)(Shop(), "7", 5)


RESULTS = [
    Decimal("1.50"),
    UUID(int=7),
    datetime(2026, 11, 29, 5, tzinfo=UTC),
    date(2026, 11, 29),
    time(5, 7),
    timedelta(days=-1, microseconds=3),
    b"\x00\xff",
    {"rows": [{"price": Decimal(2)}]},
    (1, ("a", {3, 4}), frozenset()),
    {1: "a", "1": "b", (2, None): {True: []}},
]


def test_a_repeat_gets_a_result_of_the_type_that_the_first_call_gave(side: Side) -> None:
    def given(number: int) -> object:
        return RESULTS[number]

    once = Calls(side).once(given)
    first, again = ([once(number) for number in range(len(RESULTS))] for _ in range(2))
    assert (first, again, list(map(type, again))) == (RESULTS, RESULTS, list(map(type, RESULTS)))


def test_an_expression_names_the_key_and_all_else_is_the_payload(side: Side) -> None:
    work = Work()

    def charge(order: Order) -> int:
        return work(order)

    once = Calls(side).once(charge, "{order.id}")
    assert (once(Order("7")), once(Order("7")), once(Order("8"))) == (1, 1, 2)
    with pytest.raises(OtherPayload):
        once(Order("7", 2))


def test_a_callable_names_the_key(side: Side) -> None:
    work = Work()

    def charge(order: Order, units: int = 1) -> int:
        return work(order, units)

    once = Calls(side).once(charge, lambda order, units: (order.id, units), payload=False)
    assert (once(Order("7", 1)), once(Order("7", 5)), once(Order("7"), 2)) == (1, 1, 2)


# --- refused ---


def decorators() -> list[Callable[..., Any]]:
    return [Dedup(MemoryStore(), "n"), AsyncDedup(AsyncMemoryStore(), "n")]


def plain(order: Order, units: int = 1) -> None:
    """Be decorated."""


async def coroutine(order: Order, units: int = 1) -> None:
    """Be decorated."""


def test_functions_of_the_other_colour_and_what_is_no_function_are_refused() -> None:
    sync, asynchronous = decorators()
    for decorate, target, sentence in (
        (sync(), coroutine, "Dedup runs a function, and .*coroutine is a coroutine function"),
        (asynchronous(), plain, "AsyncDedup runs a coroutine function, and .*plain is a function"),
        (sync(), 7, "decorates a function, not 7; a decorator without options needs its \\(\\)$"),
        (sync(), Order, "decorates a function"),
        (sync(), staticmethod(plain), "stands below @staticmethod"),
        (sync(), lambda order: order, "has no name of its own"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            decorate(target)


def test_a_store_can_be_given_when_it_is_there() -> None:
    stores: list[AsyncMemoryStore] = []
    dedup = AsyncDedup(lambda: stores[0], "late")
    work = Work()

    @dedup()
    async def charge(order: str) -> int:
        return work(order)

    async def scene() -> list[int]:
        stores.append(AsyncMemoryStore())
        return [await charge("7"), await charge("7")]

    assert asyncio.run(scene()) == [1, 1]


def test_a_result_is_kept_for_its_window_and_then_the_call_runs_again(side: Side) -> None:
    calls, work = Calls(side, keep=60), Work()
    assert (calls.call("k", work), calls.call("k", work)) == (1, 1)
    brief, work = Calls(side, keep=0.1), Work()
    assert brief.call("k", work) == 1
    side.pass_time(0.15)
    assert brief.call("k", work) == 2


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


def test_f22_the_same_key_with_another_payload_is_refused(side: Side) -> None:
    calls, work = Calls(side), Work()
    assert calls.call("order-1", work, payload={"units": 2}) == 1
    with pytest.raises(OtherPayload):
        calls.call("order-1", work, payload={"units": 3})
    assert (calls.call("order-1", work, payload={"units": 2}), calls.call("order-1", work), work.done) == (1, 1, 1)


def test_a_replay_says_whose_it_is_and_how_old_and_its_with_statement_does_nothing(side: Side) -> None:
    calls = Calls(side)
    with calls.run("k") as run:
        run.finish({"paid": True})
    side.pass_time(0.2)
    with calls.replay("k") as replay:
        assert replay.result == {"paid": True}
    assert (replay.message_id, 0.2 <= replay.age < 30) == (run.message_id, True)
    assert "paid" not in repr(replay)


BAD_SETTINGS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"keep": -1}, "keep of -1 s is not a duration"),
    ({"keep_failures": -0.5}, "keep_failures of -0.5 s is not a duration"),
    ({"keep": float("nan")}, "keep of nan s"),
    (
        {"keep": "a day"},
        "keep is a number of seconds, a timedelta or a text such as '30s', '5m', '2h' or '1d', not 'a day'",
    ),
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


def test_a_run_has_one_outcome(side: Side) -> None:
    calls = Calls(side)
    run = calls.run("k")
    run.finish(1)
    with pytest.raises(InvalidInput, match="has ended already; it has one outcome"):
        run.finish(2)
    run.abandon()
    assert calls.replay("k").result == 1


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


def test_an_overtaken_run_is_told_and_the_outcome_is_that_of_the_newer(side: Side) -> None:
    calls = Calls(side)
    older = lapsed(calls)
    newer = calls.run("k")
    assert newer.fencing_token > older.fencing_token
    with pytest.raises(RunLost):
        older.finish("older")
    newer.finish("newer")
    assert calls.replay("k").result == "newer"


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


def points(run: Any) -> str:  # noqa: ANN401  # as above
    return f"points:{run.hash_tag}"


@pytest.mark.own_keys
def test_an_effect_that_fails_frees_the_key_at_the_end_of_the_body(plain_redis_side: Side) -> None:
    calls = Calls(plain_redis_side)
    with pytest.raises(StoreRefused), calls.run("k") as run:
        run.finish_with(StoreEffect("return redis.call('INCRBY', KEYS[1], 'x')", keys=[points(run)]))
    calls.run("k").abandon()


ENDS: Final = """
local key, found = KEYS[1], {}
redis.call('SET', key, 'x', 'ex', 60)
found[1] = math.ceil(redis.call('PTTL', key) / 60000)
redis.call('EXPIRE', key, 7200)
found[2] = math.ceil(redis.call('PTTL', key) / 60000)
found[3] = redis.call('UNLINK', key)
return { ends = found, said = 'a "b" / \\\\ \\1', none = {}, half = 0.5, is_true = true, got = redis.call('GET', key) }
"""


def test_an_effect_in_memory_ends_its_keys_and_its_result_is_kept() -> None:
    dedup = Dedup(MemoryStore(), "n")
    with dedup.begin("k") as run:
        found = run.finish_with(StoreEffect(ENDS, keys=["n"]))  # type: ignore[union-attr]  # no replay
    said = 'a "b" / \\ \1'
    assert found == {"ends": [1, 120, 1], "said": said, "none": {}, "half": 0.5, "is_true": True, "got": False}
    assert dedup.begin("k").result == found  # type: ignore[union-attr]  # a replay


@pytest.mark.parametrize(
    ("command", "said"),
    [("'GEOADD', KEYS[1], 1, 2, 'x'", "Unknown Redis command"), ("'SET', KEYS[1], 'x', 'EXAT', 60", "syntax error")],
)
def test_an_effect_with_what_memory_does_not_know_is_refused_and_frees_the_key(command: str, said: str) -> None:
    dedup = Dedup(MemoryStore(), "n")
    with pytest.raises(StoreRefused, match=said), dedup.begin("k") as run:
        run.finish_with(StoreEffect(f"return redis.call({command})", keys=["n"]))  # type: ignore[union-attr]  # no replay
    dedup.begin("k").abandon()  # type: ignore[union-attr]  # as above


# --- the store forgets, the process forks, the task is cancelled ---


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


def test_f25_values_that_only_look_alike_are_different_calls(side: Side) -> None:
    work = Work()

    def task(a: object, b: object = None) -> int:
        return work(a, b)

    once = Calls(side).once(task)
    found = [
        once("1_b-2"),
        once(1, 2),
        once("1", 2),
        once(1, "2"),
        once(a=True, b=2),
        once(1.0, 2),
        once([1, 2]),
        once("[1, 2]"),
    ]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]


def test_keys_and_namespaces_keep_apart(side: Side) -> None:
    work, other = Work(), Calls(side)
    calls = Calls(side)
    assert [one.call(key, work) for one, key in ((calls, "a"), (calls, "b"), (other, "a"))] == [1, 2, 3]


@pytest.mark.parametrize("result", [object(), "x" * 100, (object(),)], ids=["no JSON", "too large", "in a tuple"])
def test_a_result_that_cannot_be_kept_is_given_once_and_repeats_are_told(side: Side, result: object) -> None:
    calls = Calls(side, size_max=50)
    assert calls.call("k", lambda: result) is result
    work = Work()
    with pytest.raises(ResultUnkept, match="its result was not kept"):
        calls.call("k", work)
    assert work.done == 0
