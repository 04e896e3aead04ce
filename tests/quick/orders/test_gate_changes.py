"""Changes of a gated pool on both sides, and pools that vanished."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from segmented import MemoryStore, Order, Pool, Settled, SoldOut
from segmented.celery.selling.sale import open_sale, read_states
from segmented.errors import ChangeDiverged, ChangeMismatch, InvalidInput, PoolNotGated, StoreRefused
from segmented.models import Closed, Resized, Restocked, TooFew
from segmented.orders import Gate
from segmented.orders.answers import SegmentTotals, TooFewUnsold
from segmented.orders.opening import resize_gated, restock_gated, withdraw_gated
from segmented.orders.sale import take_order
from segmented.orders.stocking import Change
from segmented.orders.tables import RESTOCKED, WITHDRAWN
from tests.support.dying import Deaths, Died, DyingStore, StepCounter, let_die
from tests.support.pools.engines import engine_of


@pytest.fixture
def changed_store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def pool(changed_store: MemoryStore, gate: Gate) -> Pool:
    pool = Pool(changed_store, "mug")
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    return pool


def quotas(gate: Gate) -> dict[int, int]:
    return {row.segment: row.quota for row in gate.totals("mug").segments}


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int) -> object:
    answer = take_order(pool, gate, Order(order_id, quantity), timeout=0)
    return answer.state if isinstance(answer, Settled) else type(answer)


def check_agree(pool: Pool, gate: Gate) -> None:
    """Both sides have stocked and sold the same, nothing is under way, and the ledger explains all of it."""
    state, totals = pool.state(), gate.totals(pool.sku)
    assert (totals.quota, totals.sold) == (state.stocked, state.confirmed)
    assert gate.confirmed_units(pool.sku) == state.confirmed
    assert gate.unfinished_changes(pool.sku) == ()
    assert pool.audit().is_clean


# --- restock ---


def test_a_restock_counts_once_on_both_sides(pool: Pool, gate: Gate) -> None:
    for replay in (False, True):
        answer = restock_gated(pool, gate, 5, restock_id="monday")
        assert isinstance(answer, Restocked)
        assert (answer.units, answer.available, answer.replay) == (5, 15, replay)
        assert quotas(gate) == {0: 8, 1: 7}
        check_agree(pool, gate)
    assert sell(pool, gate, "a", 15) == "confirmed"
    assert sell(pool, gate, "b", 1) is SoldOut
    check_agree(pool, gate)


def test_an_id_stands_for_one_change_on_both_sides(pool: Pool, gate: Gate) -> None:
    restock_gated(pool, gate, 5, restock_id="monday")
    withdraw_gated(pool, gate, 2, withdraw_id="tuesday")
    for change in (
        lambda: restock_gated(pool, gate, 6, restock_id="monday"),
        lambda: withdraw_gated(pool, gate, 5, withdraw_id="monday"),
        lambda: withdraw_gated(pool, gate, 1, withdraw_id="tuesday"),
        lambda: restock_gated(pool, gate, 2, restock_id="tuesday"),
    ):
        with pytest.raises(ChangeMismatch):
            change()
    assert sum(quotas(gate).values()) == 13
    check_agree(pool, gate)


def test_an_id_that_only_the_database_knows_yet_is_refused_for_another_change(pool: Pool, gate: Gate) -> None:
    """A restock died before the pool had heard of it: a withdrawal under its id would make it impossible to finish."""
    counter = StepCounter(3)
    with pytest.raises(Died):
        restock_gated(Pool(DyingStore(pool.store, counter), "mug"), gate, 5, restock_id="monday")
    with pytest.raises(ChangeMismatch):
        withdraw_gated(pool, gate, 5, withdraw_id="monday")
    restock_gated(pool, gate, 5, restock_id="monday")
    assert pool.state().available == 15
    check_agree(pool, gate)


def test_the_database_alone_refuses_other_units_under_an_id_and_more_than_is_unsold(pool: Pool, gate: Gate) -> None:
    restock = Change("mug", "monday", RESTOCKED, 5, epoch=1)
    gate.stocking.begin(restock, 2)
    with pytest.raises(ChangeMismatch):
        gate.stocking.begin(replace(restock, units=6), 2)
    sell(pool, gate, "a", 4)
    withdrawal = Change("mug", "tuesday", WITHDRAWN, 12, epoch=1)
    gate.stocking.begin(withdrawal, 2)
    assert gate.stocking.finish(withdrawal) == TooFewUnsold(total=15, sold=4)
    assert sum(quotas(gate).values()) == 15


def test_a_closed_pool_takes_no_restock_and_the_database_gives_it_up_again(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "a", 4)
    pool.close()
    for _ in range(2):
        assert restock_gated(pool, gate, 5, restock_id="late") == Closed("late")
        assert gate.totals("mug").quota == 10
        check_agree(pool, gate)


def test_a_restock_that_was_in_before_the_pool_closed_is_a_replay_afterwards(pool: Pool, gate: Gate) -> None:
    restock_gated(pool, gate, 5, restock_id="monday")
    pool.close()
    answer = restock_gated(pool, gate, 5, restock_id="monday")
    assert isinstance(answer, Restocked)
    assert answer.replay
    check_agree(pool, gate)


# --- withdraw ---


def test_a_withdrawal_counts_once_on_both_sides(pool: Pool, gate: Gate) -> None:
    for replay in (False, True):
        answer = withdraw_gated(pool, gate, 4, withdraw_id="back")
        assert isinstance(answer, Restocked)
        assert (answer.available, answer.replay) == (6, replay)
        assert quotas(gate) == {0: 3, 1: 3}
        check_agree(pool, gate)
    assert sell(pool, gate, "a", 6) == "confirmed"
    assert sell(pool, gate, "b", 1) is SoldOut


def test_a_withdrawal_of_more_than_is_free_changes_nothing_and_may_be_tried_again(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "a", 8)
    assert withdraw_gated(pool, gate, 4, withdraw_id="back") == TooFew("back", 4, 2)
    assert gate.totals("mug").quota == 10
    assert [(row.change_id, row.units, row.state) for row in gate.unfinished_changes("mug")] == [("back", 4, "begun")]
    restock_gated(pool, gate, 3, restock_id="monday")
    answer = withdraw_gated(pool, gate, 4, withdraw_id="back")
    assert isinstance(answer, Restocked)
    assert (answer.available, answer.replay, gate.totals("mug").quota) == (1, False, 9)
    check_agree(pool, gate)


# --- resize ---


def test_new_segments_have_rows_and_those_that_went_away_keep_theirs(pool: Pool, gate: Gate) -> None:
    assert sell(pool, gate, "a", 3) == "confirmed"
    for segment_count, rows in ((5, 5), (1, 5), (3, 5), (7, 7)):
        answer = resize_gated(pool, gate, segment_count)
        assert isinstance(answer, Resized)
        assert (pool.state().segment_count, len(quotas(gate))) == (segment_count, rows)
        assert resize_gated(pool, gate, segment_count).replay
        assert sell(pool, gate, f"at-{segment_count}", 1) == "confirmed"
        check_agree(pool, gate)
    assert sell(pool, gate, "all-that-is-left", 3) == "confirmed"
    assert sell(pool, gate, "one-more", 1) is SoldOut
    check_agree(pool, gate)


# --- what is refused ---


def test_a_pool_without_a_gate_or_rows_is_refused_and_nothing_changes(gate: Gate) -> None:
    pool = Pool(MemoryStore(), "mug")
    pool.open(stock=10, segments=2)
    gate.open("mug", [5, 5])
    other = Pool(MemoryStore(), "cup")
    other.open(stock=10, segments=2, gated=True)
    for at, error in ((pool, PoolNotGated), (other, ChangeDiverged)):
        for change in (
            lambda at=at: restock_gated(at, gate, 1, restock_id="x"),
            lambda at=at: withdraw_gated(at, gate, 1, withdraw_id="x"),
            lambda at=at: resize_gated(at, gate, 3),
        ):
            with pytest.raises(error):
                change()
        assert (at.state().sequence, at.state().segment_count) == (1, 2)
    assert quotas(gate) == {0: 5, 1: 5}


def test_a_pool_of_another_epoch_is_refused_and_nothing_changes(changed_store: MemoryStore, gate: Gate) -> None:
    gate.open("mug", [5, 5], epoch=3)
    pool = Pool(changed_store, "mug")
    pool.open(stock=10, segments=2, gated=True, epoch=2)
    with pytest.raises(ChangeDiverged, match="about change 'x': the database is in epoch 3"):
        restock_gated(pool, gate, 1, restock_id="x")
    with pytest.raises(ChangeDiverged, match="about a resize to 3 segments: the database is in epoch 3"):
        resize_gated(pool, gate, 3)
    assert (quotas(gate), pool.state().sequence) == ({0: 5, 1: 5}, 1)


def test_units_that_are_none_are_refused_before_the_database_is_asked(pool: Pool, gate: Gate) -> None:
    counter = StepCounter(1)
    let_die(gate, counter)
    for units in (0, -1, True, 1.5, 10**13):
        for change in (
            lambda units=units: restock_gated(pool, gate, units, restock_id="x"),
            lambda units=units: withdraw_gated(pool, gate, units, withdraw_id="x"),
        ):
            with pytest.raises(InvalidInput):
                change()
    for wrong in (
        lambda: resize_gated(pool, gate, 0),
        lambda: restock_gated(pool, gate, 1, restock_id=""),
        lambda: withdraw_gated(pool, gate, 1, withdraw_id="a\nb"),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    assert counter.counted == 0


# --- a sale that is under way already ---


def test_a_database_of_an_earlier_release_sells_and_gets_the_table_that_it_lacks(
    changed_store: MemoryStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database)
    with engine_of(gate).connect() as connection:  # to make the database as it was
        connection.exec_driver_sql("DROP TABLE segmented_changes")
    pool = Pool(changed_store, "mug")
    pool.open(stock=10, segments=2, gated=True)
    gate.open("mug", [5, 5])
    assert sell(pool, gate, "a", 3) == "confirmed"
    with pytest.raises(StoreRefused, match="segmented_changes"):
        restock_gated(pool, gate, 5, restock_id="monday")
    assert (pool.state().stocked, gate.totals("mug").quota) == (10, 10)
    gate.create()
    restock_gated(pool, gate, 5, restock_id="monday")
    check_agree(pool, gate)


def test_a_run_of_sell_goes_on_with_a_pool_that_was_restocked_and_resized(pool: Pool, gate: Gate) -> None:
    resize_gated(pool, gate, 5)
    resize_gated(pool, gate, 3)
    restock_gated(pool, gate, 5, restock_id="monday")
    with pytest.raises(Died):  # half done: the rows have more than the pool
        restock_gated(Pool(DyingStore(pool.store, StepCounter(3)), "mug"), gate, 5, restock_id="tuesday")
    states = read_states({"mug": pool}, stock=10, segment_count=3)
    open_sale({"mug": pool}, states, gate, stock=10, segment_count=3)
    with pytest.raises(InvalidInput, match="pool 'mug' is open with stock 10 in 3 segments, not with stock 10 in 2 "):
        read_states({"mug": pool}, stock=10, segment_count=2)


# --- a process that dies ---

CHANGES: dict[str, Callable[[Pool, Gate], object]] = {
    "restock": lambda pool, gate: restock_gated(pool, gate, 5, restock_id="change"),
    "restock of a closed pool": lambda pool, gate: restock_gated(pool, gate, 5, restock_id="change"),
    "withdraw": lambda pool, gate: withdraw_gated(pool, gate, 5, withdraw_id="change"),
    "resize up": lambda pool, gate: resize_gated(pool, gate, 4),
    "resize down": lambda pool, gate: resize_gated(pool, gate, 1),
}
AFTER = {
    "restock": (15, 2),
    "restock of a closed pool": (10, 2),
    "withdraw": (5, 2),
    "resize up": (10, 4),
    "resize down": (10, 1),
}


def check_never_less(pool: Pool, totals: SegmentTotals) -> None:
    """The database allows at least what the pool may sell, and has a row for each of its segments."""
    state = pool.state()
    assert totals.quota >= state.stocked
    assert len(totals.segments) >= state.segment_count


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_died_at_any_step_is_finished_once_by_the_next_call(
    name: str, changed_store: MemoryStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    own, dying = open_gate(order_database), open_gate(order_database)
    deaths = Deaths(dying)
    for step in deaths:
        sku = f"mug-{step}"
        pool = Pool(changed_store, sku)
        Pool(pool.store, pool.sku, gate=own).open(stock=10, segments=2)
        if name == "restock of a closed pool":
            assert sell(pool, own, "sold", 1) == "confirmed"
            pool.close()
        deaths.at_step(CHANGES[name], Pool(deaths.store(changed_store), sku), dying)
        check_never_less(pool, own.totals(sku))
        if name != "restock of a closed pool":
            assert sell(pool, own, "one", 1) == "confirmed"
        CHANGES[name](pool, own)
        assert (pool.state().stocked, pool.state().segment_count) == AFTER[name]
        check_agree(pool, own)


@pytest.mark.parametrize("name", ["restock", "withdraw"])
def test_all_that_the_pool_has_is_sold_while_a_change_is_half_done(
    name: str, changed_store: MemoryStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    """Between the two sides, and after the sell-out: the change is finished then, too."""
    own, dying = open_gate(order_database), open_gate(order_database)
    deaths = Deaths(dying)
    for step in deaths:
        sku = f"mug-{step}"
        pool = Pool(changed_store, sku)
        Pool(pool.store, pool.sku, gate=own).open(stock=10, segments=3)
        deaths.at_step(CHANGES[name], Pool(deaths.store(changed_store), sku), dying)
        for number in range(pool.state().available):
            assert sell(pool, own, f"o-{number}", 1) == "confirmed"
        answer = CHANGES[name](pool, own)
        if isinstance(answer, TooFew):  # it had died before the pool gave anything up, and all was sold since
            assert own.totals(sku).quota == own.totals(sku).sold == 10
        else:
            check_agree(pool, own)
