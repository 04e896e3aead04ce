"""The testing package and the tools of these tests."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models import Order, Reserved
from segmented.orders import Gate
from segmented.orders.sale import finish_reserved
from segmented.stock import Pool
from segmented.stores.memory import MemoryStore
from segmented.testing.control import Control, Strike, has_struck, passages, release, write_plan
from segmented.testing.plugin import Book, unbalanced
from segmented.testing.worker_process import Launch, WorkerProcess
from tests.support.flavour import Flavour
from tests.support.paths import TESTS
from tests.support.rings import RINGS, require, ring_of, ring_of_side, side_of_turn


class TamperedStore(MemoryStore):
    """A store whose answers are changed on the way, once `tamper` is set."""

    tamper: Callable[[op.Operation[Any], Any], Any] | None = None

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        answer = super().execute(operation, deadline=deadline)
        return answer if self.tamper is None else self.tamper(operation, answer)


def a_pool(sku: str = "mug", *, orders: int = 2) -> tuple[Pool, TamperedStore]:
    """Twenty units, and orders of one unit each that hold theirs."""
    store = TamperedStore()
    pool = Pool(store, sku)
    pool.open(stock=20, segments=2)
    for number in range(orders):
        pool.reserve(Order(f"o{number}", 1))
    return pool, store


def without_records(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
    return tuple(replace(one, raw=None) for one in answer) if isinstance(operation, op.InspectOrders) else answer


def test_units_oversold_and_an_order_refused_wrongly_are_said() -> None:
    pool, store = a_pool()

    def oversold(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        return replace(answer, reserved=22) if isinstance(operation, op.ReadPool) else answer

    store.tamper = oversold
    assert "2 units oversold" in Book(pool, None).faults()

    def refused(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.ReadSteps):
            return answer
        return tuple(replace(step, kind="refused") if step.lines.startswith("o1\t") else step for step in answer)

    store.tamper = refused
    assert "1 order refused although there were enough units" in Book(pool, None).faults()


def test_of_several_pools_each_that_does_not_balance_has_its_line() -> None:
    (mug, _), (cup, store), (jar, broken) = a_pool("mug"), a_pool("cup", orders=1), a_pool("jar", orders=1)
    store.tamper = broken.tamper = without_records
    lost = "lost: order o0: it has no record, the ledger says reserved with 1 unit at 2"
    assert unbalanced([Book(mug, None), Book(cup, None), Book(jar, None)]) == (
        f"the books of pool 'cup' do not balance: {lost}\nthe books of pool 'jar' do not balance: {lost}"
    )
    assert unbalanced([Book(mug, None)]) == ""


@pytest.mark.parametrize(("orders", "last"), [(10, "lost: order o9"), (11, "and 1 more")])
def test_ten_faults_of_a_pool_are_named_and_the_rest_counted(orders: int, last: str) -> None:
    pool, store = a_pool(orders=orders)
    store.tamper = without_records
    found = Book(pool, None).faults()
    assert len(found) == orders
    assert found[-1].startswith(last)


def test_the_order_database_may_lead_its_pool_by_what_is_reserved_and_never_lags(
    sqlite_url: str, open_gate: Callable[..., Gate]
) -> None:
    gate, store = open_gate(sqlite_url), MemoryStore()
    pool = Pool(store, "mug")
    Pool(pool.store, pool.sku, gate=gate).open(stock=5, segments=1)
    orders = [Order("a", 1), Order("b", 2)]
    held = [pool.reserve(order) for order in orders]
    assert isinstance(held[0], Reserved)
    finish_reserved(pool, gate, orders[0], held[0])
    assert Book(pool, gate).faults() == []

    def stored(order_id: str, quantity: int) -> list[str]:
        gate.confirm(order_id=order_id, sku="mug", segment=0, quantity=quantity, epoch=1)
        return Book(pool, gate).faults()

    assert stored("b", 2) == []  # its pool will be told
    assert stored("c", 1) == ["the order database has 4 units sold, the pool 1 confirmed and 2 reserved"]
    gate_of_nothing = open_gate(sqlite_url.replace("orders.sqlite", "others.sqlite"))
    gate_of_nothing.open("mug", [5], 1)
    assert Book(pool, gate_of_nothing).faults() == [
        "the order database has 0 units sold, the pool 1 confirmed and 2 reserved"
    ]


WAIT_SECONDS = 20.0


def test_a_wrong_point_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no point 'before:ship'"):
        WorkerProcess(Launch("no_such_app", tmp_path), pause_at="before:ship")
    assert list(tmp_path.iterdir()) == []


def test_what_happens_at_a_point_happens_at_the_passage_that_was_named_from_then_on(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.reach("before:ack")
    pause = Strike(0, "before:ack", "pause", nth=2)
    write_plan(tmp_path, [pause])
    control.reach("before:ack")
    control.reach("after:ack")
    assert not has_struck(tmp_path, pause)
    release(tmp_path, pause)
    control.reach("before:ack")
    assert has_struck(tmp_path, pause)
    assert passages(tmp_path) == ["before:ack", "before:ack", "after:ack", "before:ack"]


def test_a_pause_of_a_coroutine_lets_the_others_go_on(tmp_path: Path) -> None:
    pause = Strike(0, "after:Grant", "pause")
    write_plan(tmp_path, [pause])
    control = Control(tmp_path)

    async def both() -> list[str]:
        said: list[str] = []

        async def paused() -> None:
            await control.areach("after:Grant")
            said.append("went on")

        async def other() -> None:
            while not has_struck(tmp_path, pause):  # noqa: ASYNC110  # it is told by a file, as from another process
                await asyncio.sleep(0)
            said.append("looked")
            release(tmp_path, pause)

        await asyncio.wait_for(asyncio.gather(paused(), other()), WAIT_SECONDS)
        return said

    assert asyncio.run(both()) == ["looked", "went on"]


MEMORY = Flavour("memory", "sync")
REDIS = Flavour("redis", "sync", 2)
REDIS_ASYNC = Flavour("redis", "async", 3)
REDIS_TEXT = Flavour("redis", "sync", 3, is_text=True)


def test_a_missing_server_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"^zookeeper is missing: no java$"):
        require("zookeeper", found=False, missing="no java")


@pytest.mark.parametrize("ring", RINGS)
def test_a_test_belongs_to_the_ring_of_its_folder(ring: str) -> None:
    assert (TESTS / ring / "__init__.py").is_file()
    assert ring_of(TESTS / ring / "deeper" / "test_something.py") == ring


def test_a_contracts_side_in_memory_is_quick_and_those_on_redis_are_real() -> None:
    sides = [MEMORY, REDIS, REDIS_ASYNC, REDIS_TEXT]
    assert [ring_of_side(side, has_memory=True) for side in sides] == ["quick", "real", "real", "real"]
    assert [ring_of_side(side, has_memory=False) for side in sides[1:]] == ["quick", "real", "real"]


def test_each_test_has_one_side_of_redis_and_all_have_every_side() -> None:
    sides = [REDIS, REDIS_ASYNC, REDIS_TEXT]
    assert {side_of_turn(f"test_{number}", sides) for number in range(20)} == set(sides)
    assert side_of_turn("test_1", sides) == side_of_turn("test_1", sides)


def test_a_missing_server_is_skipped_by_name_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^zookeeper is missing: no java$"):
        require("zookeeper", found=False, missing="no java")
