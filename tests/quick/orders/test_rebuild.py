"""Rebuilds of a pool from its order database, and what comes late."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import (
    ChangeDiverged,
    GrantSuperseded,
    InvalidInput,
    PoolDiverged,
    PoolFrozen,
    PoolNotFrozen,
    PoolUnverified,
)
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen, TooFew
from segmented.models.submitted import BegunOrder, Deciding
from segmented.orders import Gate, audit_both, rebuild, take_envelope
from segmented.orders.opening import restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, finish_reserved, take_order
from segmented.orders.verifying import compare_once
from segmented.plans.drivers import Store
from segmented.servers import ValkeyServer
from segmented.stock import Grant
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.dying import Died, DyingStore, StepCounter, let_die
from tests.support.overtaking import OvertakenStore
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell
from tests.support.pools.gated_shop import check
from tests.support.workers.envelope_till import BOTH

pytestmark = pytest.mark.usefixtures("patient_attempts")

STEPS_MAX: Final = 200


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments, on both sides."""
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4)
    return pool


def test_lost_sales_freeze_the_pool_and_a_rebuild_sells_exactly_the_rest(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "kept", 2)
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    for _ in range(2):
        with pytest.raises(PoolFrozen):
            take_order(pool, gate, Order("next"), timeout=0)
    thawed = rebuild(pool, gate)
    state = thawed.state
    assert (state.epoch, state.confirmed, state.available, pool.state().lost, thawed.replay) == (2, 5, 15, 3, False)
    again = sell(pool, gate, "lost", 3)
    assert (again.state, again.replay) == ("confirmed", True)
    check_sells_the_rest(pool, gate)


def test_an_order_that_was_confirmed_in_the_database_alone_is_not_reserved_any_more(pool: Pool, gate: Gate) -> None:
    reserved = pool.reserve("sold", quantity=4)
    open_one = pool.reserve("open", quantity=2)
    assert isinstance(reserved, Reserved)
    assert isinstance(open_one, Reserved)
    with forgotten(pool):
        finish_reserved(pool, gate, Order("sold", 4), reserved)
    with pytest.raises(PoolFrozen):
        pool.confirm("open")
    state = rebuild(pool, gate).state
    assert (state.confirmed, state.reserved, state.available, pool.state().lost) == (4, 2, 14, 0)
    repeated = pool.reserve("open", quantity=2)
    assert isinstance(repeated, Reserved)
    assert repeated.epoch == 2
    assert finish_reserved(pool, gate, Order("open", 2), repeated).state == "confirmed"
    check_sells_the_rest(pool, gate)


@pytest.mark.parametrize("decides", BOTH)
def test_submitted_orders_survive_and_lost_ones_are_sold_once(pool: Pool, gate: Gate, decides: Deciding) -> None:
    shop = Pool(pool.store, SKU, outbox=Outbox(decides=decides))
    shop.submit("kept")
    with forgotten(pool):
        shop.submit("lost")
        assert len(take_envelope(shop, ["kept", "lost"], gate=gate).settled) == 2
    with pytest.raises(PoolFrozen):
        take_envelope(shop, ["kept"], gate=gate)
    rebuild(shop, gate)
    shop.submit("lost")
    report = take_envelope(shop, ["kept", "lost"], gate=gate)
    assert sorted((one.order_id, one.state) for one in report.settled) == [("kept", "confirmed"), ("lost", "confirmed")]
    assert gate.totals(SKU).sold == 2
    check_sells_the_rest(shop, gate)


def test_a_pool_that_has_units_the_database_has_sold_is_frozen_at_the_refusal(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "all", 20)
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(shard_keys(SKU).meta, "available", "5")  # nonsense, as from a foreign write
    pool.store.client.hset(shard_keys(SKU).stock, "0", "5")
    with pytest.raises(PoolFrozen):
        take_order(pool, gate, Order("phantom", 5), timeout=0)
    assert rebuild(pool, gate).state.available == 0
    assert gate.totals(SKU).sold == 20


def test_a_superseded_grant_is_freed_at_once_and_its_body_is_not_run_again_unasked(pool: Pool, gate: Gate) -> None:
    for segment in range(4):  # every row has accepted a token far ahead of the pool's clock
        pool.grant(f"ahead-{segment}", timeout=0)
        fence = 1 << 52
        gate.confirm(order_id=f"ahead-{segment}", sku=SKU, segment=segment, quantity=1, epoch=1, fence=fence)
        pool.store.execute(op.Confirm(SKU, f"ahead-{segment}", decided=True))
    ran_for: list[int] = []

    def body(grant: Grant) -> None:
        ran_for.append(grant.fencing_token)

    with pytest.raises(GrantSuperseded):
        take_order(pool, gate, Order("a"), timeout=0, body=body)
    assert len(ran_for) == 1
    state = pool.state()
    assert (state.reserved, len([pool.grant(f"free-{number}", timeout=0) for number in range(4)])) == (1, 4)


def test_a_superseded_grant_without_a_body_is_granted_again_above_the_row_and_sold(pool: Pool, gate: Gate) -> None:
    gate.confirm(order_id="ahead", sku=SKU, segment=0, quantity=1, epoch=1, fence=1 << 52)
    pool.store.execute(op.Withdraw(SKU, "ahead", 1))
    assert {sell(pool, gate, f"o-{number}").fencing_token or 0 for number in range(4)} >= {(1 << 52) + 1}


def test_every_step_of_a_rebuild_may_be_the_last_one_of_its_process(store: RedisStore, gate: Gate) -> None:
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=1_000, segments=4)
    assert isinstance(pool.reserve("open", quantity=3), Reserved)
    counter = StepCounter()
    let_die(gate, counter)
    for steps in range(1, STEPS_MAX):
        reserved = pool.reserve(f"sold-{steps}")
        assert isinstance(reserved, Reserved)
        with forgotten(pool):
            finish_reserved(pool, gate, Order(f"sold-{steps}"), reserved)
            sell(pool, gate, f"lost-{steps}")
        with pytest.raises(PoolFrozen):
            pool.reserve("next")
        counter.counted, counter.steps = 0, steps
        try:
            rebuild(Pool(DyingStore(store, counter), SKU), gate)
            has_died = False
        except Died:
            has_died = True
        counter.steps = None
        if has_died:
            with suppress(PoolNotFrozen):  # it had ended
                rebuild(pool, gate)
        state = pool.state()
        assert (state.frozen, state.confirmed, state.reserved) == (None, 2 * steps, 3)
        assert (state.available, state.lost) == (1_000 - 2 * steps - 3, steps)
        assert pool.audit().is_clean
        if not has_died:
            break
    assert 10 < steps < STEPS_MAX - 1


def test_the_program_that_opened_the_sale_opens_it_again_after_a_rebuild(pool: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost")
    with pytest.raises(PoolFrozen):
        pool.reserve("next")
    rebuild(pool, gate)
    again = Pool(pool.store, SKU, gate=gate).open(stock=20, segments=4)
    assert isinstance(again, AlreadyOpen)
    assert (again.state.epoch, again.state.confirmed) == (2, 1)


# --- real servers, and the command line ---


def test_the_command_thaws_a_pool_with_the_operators_number(store: RedisStore, valkey: ValkeyServer) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=20, segments=4)
    with forgotten(pool), pool.grant("lost"):
        pass
    with pytest.raises(PoolFrozen):
        pool.reserve("next")
    unasked = ran("pool", "thaw", SKU, "--sold", "1", url=valkey.url)
    assert unasked.returncode == 2
    too_many = ran("pool", "thaw", SKU, "--sold", "21", "--yes", url=valkey.url)
    assert (too_many.returncode, "21 sold units are more than the 20 units" in too_many.stderr) == (2, True)
    done = ran("pool", "thaw", SKU, "--sold", "1", "--yes", url=valkey.url)
    assert (done.returncode, done.stdout) == (0, "thawed in epoch 2: 1 sold, 0 reserved, 19 free\n")
    again = ran("pool", "thaw", SKU, "--sold", "1", "--yes", url=valkey.url)
    assert (again.returncode, again.stdout) == (0, "sells in epoch 2: nothing is changed\n")
    assert pool.audit().is_clean


def test_the_hook_of_a_store_is_called_once_for_each_loss(store: RedisStore) -> None:
    found: list[PoolFrozen] = []
    store.on_frozen = found.append
    pool = Pool(store, SKU)
    pool.open(stock=20, segments=4)
    with forgotten(pool), pool.grant("lost"):
        pass
    for _ in range(3):
        with pytest.raises(PoolFrozen):
            pool.reserve("next")
    assert [(one.sku, one.found, one.seen) for one in found] == [(SKU, (1, 1), (1, 3))]


@pytest.fixture
def drifted_pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units, of which four are sold and five are reserved, after a restock, a withdrawal and a rebuild."""
    drifted_pool = Pool(store, SKU)
    Pool(drifted_pool.store, drifted_pool.sku, gate=gate).open(stock=18, segments=4)
    restock_gated(drifted_pool, gate, 5, restock_id="r")
    withdraw_gated(drifted_pool, gate, 3, withdraw_id="w")
    sell(drifted_pool, gate, "sold before", 3)
    drifted_pool.store.execute(op.FreezePool(SKU, 1))
    rebuild(drifted_pool, gate)
    sell(drifted_pool, gate, "sold")
    assert isinstance(drifted_pool.reserve("kept", quantity=5), Reserved)
    return drifted_pool


def write(drifted_pool: Pool, **said: str) -> None:
    """Write to the pool's numbers, as another program does."""
    assert isinstance(drifted_pool.store, RedisStore)
    drifted_pool.store.client.hset(shard_keys(SKU).meta, mapping=said)


def check_rebuilt(drifted_pool: Pool, gate: Gate, epoch: int = 3) -> None:
    state = drifted_pool.state()
    numbers = (state.epoch, state.confirmed, state.reserved, state.available, state.frozen, state.unreadable)
    assert numbers == (epoch, 4, 5, 11, None, ())
    assert (state.restocked, state.withdrawn, state.lost) == (5, 3, 0)
    assert drifted_pool.audit().is_clean, drifted_pool.audit().drift
    assert audit_both(drifted_pool, gate).is_clean
    kept = drifted_pool.reserve("kept", quantity=5)
    assert isinstance(kept, Reserved)
    assert kept.replay
    assert finish_reserved(drifted_pool, gate, Order("kept", 5), kept).state == "confirmed"
    check_sells_the_rest(drifted_pool, gate)


@pytest.mark.parametrize("number", ["epoch", "sequence", "available", "fence"])
def test_a_number_that_cannot_be_read_is_counted_again(drifted_pool: Pool, gate: Gate, number: str) -> None:
    drifted_pool.store.execute(op.FreezePool(SKU, 2))
    write(drifted_pool, **{number: "x"})
    rebuild(drifted_pool, gate)
    check_rebuilt(drifted_pool, gate)


KEYS: Final = ("stock", "ledger", "orders", "holds")


@pytest.fixture
def short_pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments: two are sold, three and one are reserved, and one of these is submitted."""
    short_pool = Pool(store, SKU, outbox=Outbox())
    Pool(short_pool.store, short_pool.sku, gate=gate).open(stock=20, segments=4)
    sell(short_pool, gate, "sold", 2)
    assert isinstance(short_pool.reserve("kept", quantity=3), Reserved)
    short_pool.submit_many([Order("submitted")])
    return short_pool


def lose(short_pool: Pool, key: str) -> None:
    assert isinstance(short_pool.store, RedisStore)
    assert short_pool.store.client.delete(getattr(shard_keys(SKU), key)) == 1


@pytest.mark.parametrize("key", KEYS)
def test_a_pool_that_lost_a_key_is_rebuilt_and_sells_exactly_the_rest(short_pool: Pool, gate: Gate, key: str) -> None:
    lose(short_pool, key)
    with pytest.raises(PoolFrozen, match=f"its key '{key}' is gone"):
        take_order(short_pool, gate, Order("next"), timeout=0)
    state = rebuild(short_pool, gate).state
    reserved = 0 if key == "orders" else 4
    assert (state.epoch, state.confirmed, state.reserved, state.available) == (2, 2, reserved, 18 - reserved)
    assert (sell(short_pool, gate, "sold", 2).replay, gate.totals(SKU).sold) == (True, 2)
    report = take_envelope(short_pool, ["submitted"], gate=gate)
    assert [one.state for one in report.settled] == ([] if key == "orders" else ["confirmed"])
    assert list(report.unknown) == (["submitted"] if key == "orders" else [])
    if key == "orders":
        sell(short_pool, gate, "submitted")
    else:
        assert cancel_order(short_pool, gate, Order("kept", 3)).state == "cancelled"
    check_sells_the_rest(short_pool, gate)


def test_the_hook_the_log_and_the_commands_tell_of_a_key_that_is_gone(
    short_pool: Pool,
    store: RedisStore,
    valkey: ValkeyServer,
    order_database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[PoolFrozen] = []
    store.on_frozen = heard.append
    lose(short_pool, "holds")
    with caplog.at_level(logging.ERROR, logger="segmented.stock"):
        for _ in range(2):
            with pytest.raises(PoolFrozen):
                short_pool.reserve("next")
    assert [(one.sku, one.missing) for one in heard] == [(SKU, "holds")]
    assert [record.getMessage() for record in caplog.records] == [
        "pool.frozen sku=mug found=(1, 5) seen=(1, 5) missing=holds"
    ]
    audited = ran("pool", "audit", SKU, url=valkey.url)
    line = "frozen: mug is at change 5 of epoch 1, and one of its keys is gone, or its order database knows of more"
    assert (audited.returncode, line in audited.stdout.splitlines()) == (1, True)
    done = ran("pool", "rebuild", SKU, url=valkey.url, database=order_database)
    assert (done.returncode, done.stdout) == (0, "rebuilt in epoch 2: 2 sold, 4 reserved, 14 free\n")


@pytest.fixture
def fresh(valkey: ValkeyServer) -> Iterator[Pool]:
    """The same pool in another process."""
    with RedisStore.from_url(valkey.url) as other:
        yield Pool(other, SKU)


def rebuilt(pool: Pool, gate: Gate) -> None:
    """Freeze the pool and rebuild it, as another process does after a loss."""
    pool.store.execute(op.FreezePool(SKU, pool.state().epoch))
    rebuild(pool, gate)


def late(pool: Pool, kind: type[op.Operation[Any]], happens: Callable[[], object], nth: int = 1) -> Pool:
    """Return the pool of a process that is held up before its nth operation of a kind."""
    return Pool(OvertakenStore(pool.store, kind, nth, happens), SKU, outbox=pool.outbox)


# --- orders ---


def test_a_confirm_after_a_rebuild_gives_back_the_units_that_its_order_got_again(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        rebuilt(fresh, gate)
        assert isinstance(fresh.reserve("late", quantity=3), Reserved)  # its caller tried again elsewhere

    reserved: list[Reserved] = []
    with forgotten(pool):  # the reservation is lost, so the rebuild finds no units of the order
        answer = pool.reserve("late", quantity=3)
        assert isinstance(answer, Reserved)
        reserved.append(answer)
    settled = finish_reserved(late(fresh, op.Confirm, happens), gate, Order("late", 3), reserved[0])
    assert (settled.state, settled.quantity) == ("confirmed", 3)
    check(fresh, gate, confirmed=3, available=17)


def test_an_order_sold_in_an_earlier_epoch_keeps_units_the_pool_took_in_part(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        rebuilt(fresh, gate)
        sell(fresh, gate, "rest", 16)
        assert isinstance(fresh.reserve(Order("late", 3), partial=True), Reserved)  # one unit is left
        assert Pool(fresh.store, SKU, gate=gate).confirm("late").quantity == 3

    with forgotten(pool):
        reserved = pool.reserve("late", quantity=3)
    assert isinstance(reserved, Reserved)
    settled = finish_reserved(late(fresh, op.Confirm, happens), gate, Order("late", 3), reserved)
    assert (settled.state, settled.quantity) == ("confirmed", 3)
    check(fresh, gate, confirmed=19, available=1)


def test_units_of_an_order_that_an_earlier_epoch_sold_are_never_sold_again(pool: Pool, fresh: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "early", 3)
    rebuilt(fresh, gate)
    sell(fresh, gate, "rest", 16)
    assert isinstance(fresh.reserve(Order("early", 3), partial=True), Reserved)  # and its process dies
    assert isinstance(fresh.store, RedisStore)
    fresh.store.client.hset(shard_keys(SKU).meta, "available", "2")  # nonsense, as from a foreign write
    fresh.store.client.hset(shard_keys(SKU).stock, "0", "2")
    with pytest.raises(PoolFrozen):
        take_order(fresh, gate, Order("phantom", 2), timeout=0)
    assert (gate.orders(SKU, ["early"])["early"].quantity, gate.totals(SKU).sold) == (3, 19)


# --- a process that still has the earlier epoch ---


def test_the_body_of_an_order_that_an_earlier_epoch_sold_does_not_run_again(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    grants: list[object] = []
    answer = take_order(long_lived, gate, Order("lost", 3), timeout=0, body=grants.append)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.replay, grants) == ("confirmed", True, [])
    check(fresh, gate, confirmed=3, available=17)


# --- workers ---


@pytest.mark.parametrize("is_sold_out", [False, True])
def test_a_worker_of_the_earlier_epoch_answers_a_sold_order_and_runs_no_step(
    pool: Pool, fresh: Pool, gate: Gate, *, is_sold_out: bool
) -> None:
    shop = Pool(fresh.store, SKU, outbox=Outbox(decides="in the worker"))
    worker = Pool(fresh.store, SKU)
    assert worker.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    if is_sold_out:
        sell(fresh, gate, "rest", 17)
    handle = shop.submit("lost", quantity=3)
    steps: list[BegunOrder] = []
    report = take_envelope(worker, ["lost"], gate=gate, step=steps.append)
    assert [(one.order_id, one.state) for one in report.settled] == [("lost", "confirmed")]
    outcome = handle.wait(timeout=0)
    assert isinstance(outcome, Settled)
    assert (outcome.state, outcome.quantity, steps) == ("confirmed", 3, [])
    check(fresh, gate, confirmed=20 if is_sold_out else 3, available=0 if is_sold_out else 17)


@pytest.mark.usefixtures("pool")
def test_a_rebuild_during_a_step_does_not_count_as_a_failure_of_the_order(fresh: Pool, gate: Gate) -> None:
    shop = Pool(fresh.store, SKU, outbox=Outbox(decides="in the worker"))
    shop.submit("slow")
    steps: list[str] = []

    def step(order: BegunOrder) -> None:
        steps.append(order.order.order_id)
        if len(steps) < 5:
            rebuilt(fresh, gate)

    for _ in range(4):
        report = take_envelope(shop, ["slow"], gate=gate, step=step)
        assert list(report.put_off) == ["slow"]
        (found,) = shop.store.execute(op.ReadSubmitted(SKU, ("slow",)))
        assert (found.begun, found.state) == (0, "reserved")
    report = take_envelope(shop, ["slow"], gate=gate, step=step)
    assert [(one.order_id, one.state) for one in report.settled] == [("slow", "confirmed")]
    check(fresh, gate, confirmed=1, available=19)


# --- changes of stock ---


def test_a_restock_whose_units_a_rebuild_has_counted_adds_nothing(pool: Pool, fresh: Pool, gate: Gate) -> None:
    held_up = late(pool, op.Restock, lambda: rebuilt(fresh, gate))
    answer = restock_gated(held_up, gate, 5, restock_id="r")
    assert (answer.units, answer.replay) == (5, True)  # type: ignore[union-attr]  # a closed pool is another test
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (25, 25, ())
    assert restock_gated(fresh, gate, 5, restock_id="r").replay  # type: ignore[union-attr]  # as above
    check(fresh, gate, confirmed=0, available=25)


def test_a_withdrawal_that_was_made_lost_and_counted_is_not_repeated_by_a_late_step(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        with forgotten(pool):
            withdraw_gated(fresh, gate, 5, withdraw_id="w")
        rebuilt(fresh, gate)

    withdraw_gated(late(pool, op.Withdraw, happens), gate, 5, withdraw_id="w")
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (15, 15, ())
    check(fresh, gate, confirmed=0, available=15)


def test_a_withdrawal_of_units_sold_but_forgotten_freezes_the_pool_and_is_undone(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    compare_once(fresh, gate)  # it has seen nothing since
    with forgotten(pool):
        sell(pool, gate, "lost", 18)
    with pytest.raises(ChangeDiverged, match="the pool has given units up, but 18 of 20 are sold"):
        withdraw_gated(fresh, gate, 5, withdraw_id="w")
    assert fresh.state().frozen is not None
    rebuild(fresh, gate)
    assert withdraw_gated(fresh, gate, 5, withdraw_id="w") == TooFew("w", 5, 2)
    assert (gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (20, ())
    check(fresh, gate, confirmed=18, available=2)
    check_sells_the_rest(fresh, gate)


def test_an_epoch_whose_sales_were_lost_is_not_used_again(pool: Pool, fresh: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost")
    pool.store.execute(op.FreezePool(SKU, 1))
    with forgotten(pool):
        assert rebuild(fresh, gate).state.epoch == 2
        late = fresh.reserve("late")
        assert isinstance(late, Reserved)
        sell(fresh, gate, "lost in epoch 2", 3)
    assert rebuild(pool, gate).state.epoch == 3  # by a process that has not seen epoch 2
    with pytest.raises(PoolDiverged, match="the database is in epoch 3"):
        finish_reserved(pool, gate, Order("late"), late)
    assert sell(pool, gate, "lost in epoch 2", 3).replay
    assert (pool.state().confirmed, gate.totals(SKU).sold) == (4, 4)
    check_sells_the_rest(pool, gate)


def test_nobody_takes_units_while_the_process_that_knows_of_the_loss_rebuilds(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)

    def take() -> None:
        with pytest.raises(PoolFrozen):
            fresh.reserve("lost", quantity=3)

    overtaken = OvertakenStore(pool.store, op.ScanKey, 1, take)
    assert rebuild(Pool(overtaken, SKU), gate).state.available == 17
    check_sells_the_rest(pool, gate)


@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        pytest.param(op.ReadPool, 2, id="before it is noted"),
        pytest.param(op.ThawPool, 1, id="after it was noted"),
    ],
)
def test_another_rebuild_that_opens_the_pool_and_is_lost_leaves_no_older_number(
    pool: Pool, fresh: Pool, gate: Gate, kind: type[op.Operation[Any]], nth: int
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))

    def overtake() -> None:
        with forgotten(pool):
            rebuild(fresh, gate)
            sell(fresh, gate, "in between", 3)

    state = rebuild(Pool(OvertakenStore(pool.store, kind, nth, overtake), SKU), gate).state
    assert (state.epoch, state.confirmed) == (gate.totals(SKU).segments[0].epoch, gate.totals(SKU).sold)
    check_sells_the_rest(fresh, gate)


def assert_rebuilt(pool: Pool, gate: Gate, epoch: int) -> None:
    assert rebuild(pool, gate).state.epoch == epoch


def test_another_rebuild_in_its_last_step_does_not_open_the_pool_in_an_earlier_epoch(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    assert gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1) is not None
    gate.stocking.note_opened(SKU, epoch=2)
    late = op.ThawPool(SKU, 2, sold=0, stocked=20, is_stored=True)
    overtaken = OvertakenStore(pool.store, op.ThawPool, 1, lambda: assert_too_late(fresh.store, late))
    assert rebuild(Pool(overtaken, SKU), gate).state.epoch == 3
    check_sells_the_rest(pool, gate)


def assert_too_late(store: Store, operation: op.ThawPool) -> None:
    with pytest.raises(InvalidInput, match="is in epoch 1, which does not fit epoch 2"):
        store.execute(operation)


def test_no_epoch_is_raised_past_one_in_which_the_pool_was_opened_since(pool: Pool, gate: Gate) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    assert_rebuilt(pool, gate, 2)
    assert gate.stocking.raise_epoch(SKU, 4, epoch=3, opened=1) is None
    check_sells_the_rest(pool, gate)


def assert_thawed(store: Store, operation: op.ThawPool) -> None:
    assert store.execute(operation) is not None


def test_a_pool_that_a_rebuild_opened_in_an_epoch_since_left_sells_nothing(pool: Pool, fresh: Pool, gate: Gate) -> None:
    """Both rebuilds died: the later one before it opened the pool, the earlier one just after it had done so."""
    with forgotten(pool):
        sell(pool, gate, "lost", 2)
    fresh.store.execute(op.FreezePool(SKU, 1))
    for epoch in (2, 3):
        assert gate.stocking.raise_epoch(SKU, 4, epoch=epoch, opened=1) is not None
    assert_thawed(fresh.store, op.ThawPool(SKU, 2, sold=2, stocked=20, is_stored=True))
    with pytest.raises(PoolUnverified):
        fresh.reserve("too early")
    with pytest.raises(PoolFrozen):
        take_order(fresh, gate, Order("too early"), timeout=0)
    assert rebuild(fresh, gate).state.epoch == 4
    check_sells_the_rest(fresh, gate)


def test_a_sold_out_pool_answers_an_order_of_an_earlier_epoch_as_the_database_does(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    sell(fresh, gate, "rest", 17)
    answer = take_order(long_lived, gate, Order("lost", 3), timeout=0)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.replay) == ("confirmed", True)
    refused = long_lived.reserve("lost", quantity=3)
    assert isinstance(refused, SoldOut)
    assert refused.epoch == 2
    check(fresh, gate, confirmed=20, available=0)
