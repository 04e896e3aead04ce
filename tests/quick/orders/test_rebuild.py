"""A gated pool whose server lost acknowledged changes is frozen, rebuilt from the order database, and sells the rest.

A server that lost its last writes is the same server here, with the pool's keys put back to what they were.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, protocol as op
from segmented.errors import (
    GrantSuperseded,
    InvalidInput,
    PoolFrozen,
    PoolMissing,
    PoolNotFrozen,
)
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen
from segmented.orders import (
    finish_reserved,
    open_gated,
    rebuild,
    reopen_gated,
    take_envelope,
    take_order,
)
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.dying import Died, DyingStore, StepCounter, let_die
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell
from tests.support.workers.envelope_till import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.submitted import Deciding
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer
    from segmented.stock import Grant

pytestmark = pytest.mark.usefixtures("patient_attempts")

STEPS_MAX: Final = 200


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments, on both sides."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=20, segments=4)
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


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_superseded_grant_is_freed_at_once_and_its_body_is_not_run_again_unasked(
    pool: Pool, gate: Gate, *, is_repeated: bool
) -> None:
    for segment in range(4):  # every row has accepted a token far ahead of the pool's clock
        pool.grant(f"ahead-{segment}", timeout=0)
        fence = 1 << 52
        gate.confirm(order_id=f"ahead-{segment}", sku=SKU, segment=segment, quantity=1, epoch=1, fence=fence)
        pool.store.execute(op.Confirm(SKU, f"ahead-{segment}", stored=True))
    ran_for: list[int] = []

    def body(grant: Grant) -> None:
        ran_for.append(grant.fencing_token)

    if is_repeated:
        answer = take_order(pool, gate, Order("a"), timeout=0, body=body, repeat_body=True)
        assert isinstance(answer, Settled)
        assert (answer.state, len(ran_for)) == ("confirmed", 2)
        assert ran_for[1] == (1 << 52) + 1
        return
    with pytest.raises(GrantSuperseded):
        take_order(pool, gate, Order("a"), timeout=0, body=body)
    assert len(ran_for) == 1
    state = pool.state()
    assert (state.reserved, len([pool.grant(f"free-{number}", timeout=0) for number in range(4)])) == (1, 4)


def test_a_superseded_grant_without_a_body_is_granted_again_above_the_row_and_sold(pool: Pool, gate: Gate) -> None:
    gate.confirm(order_id="ahead", sku=SKU, segment=0, quantity=1, epoch=1, fence=1 << 52)
    pool.withdraw(1, withdraw_id="ahead", stored=True)
    assert {sell(pool, gate, f"o-{number}").fencing_token or 0 for number in range(4)} >= {(1 << 52) + 1}


def test_every_step_of_a_rebuild_may_be_the_last_one_of_its_process(store: RedisStore, gate: Gate) -> None:
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=1_000, segments=4)
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
    again = open_gated(Pool(pool.store, SKU), gate, stock=20, segments=4)
    assert isinstance(again, AlreadyOpen)
    assert (again.state.epoch, again.state.confirmed) == (2, 1)


# --- what is refused ---


def test_a_pool_that_sells_is_not_rebuilt(pool: Pool, gate: Gate) -> None:
    with pytest.raises(PoolNotFrozen):
        rebuild(pool, gate)
    assert gate.totals(SKU).segments[0].epoch == 1


def test_a_database_without_rows_for_the_pool_is_refused_in_one_sentence(
    pool: Pool, gate: Gate, open_gate: Callable[..., Gate], tmp_path: object
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost")
    with pytest.raises(PoolFrozen):
        pool.reserve("next")
    other = open_gate(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(
        InvalidInput,
        match=r"^the order database \S+ has no rows for 'mug': name the database that the pool was opened with$",
    ):
        rebuild(pool, other)
    assert pool.state().frozen is not None


def test_a_pool_whose_keys_are_gone_is_opened_again_and_not_rebuilt(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "sold")
    assert isinstance(pool.store, RedisStore)
    pool.store.client.flushall()
    with pytest.raises(PoolMissing):
        rebuild(pool, gate)
    reopen_gated(pool, gate, segments=4, epoch=2)
    check_sells_the_rest(pool, gate)


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
