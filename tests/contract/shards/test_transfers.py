"""Units on the way between two shards: each message is safe to repeat, and changes nothing when it comes late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import ShardVanished
from segmented.models import Mended, Order, PoolState, Received, Trimmed
from segmented.models.pools import Transfer
from segmented.stock.audit import audit_plan
from segmented.stock.repair import repair_plan
from tests.contract.pools.shop import LONG_MS, SHORT_MS
from tests.contract.shards.banks import Bank, Banks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


@pytest.fixture
def banks(side: Side) -> Iterator[Banks]:
    """Audited when the test ends."""
    made = Banks(side)
    yield made
    made.source.check_books()
    made.target.check_books()


def between(state: PoolState) -> tuple[int, int, int, int]:
    return state.stocked, state.available, state.sent, state.received


def test_a_transfer_takes_units_out_here_and_puts_them_in_there(banks: Banks) -> None:
    assert banks.source.send(4) == Transfer("away", 1, 1, 4)
    assert between(banks.source.state()) == (3, 3, 4, 0)
    assert banks.source.state().transfers == (Transfer("away", 1, 1, 4), Transfer("sent", 1, 1, 4))
    assert banks.target.receive(1, 4) == Received(1, 4)
    assert between(banks.target.state()) == (7, 7, 0, 4)
    assert banks.target.state().stock == (4, 3)
    assert banks.source.look().away == (Transfer("away", 1, 1, 4),)
    banks.source.acknowledge(1)
    assert banks.source.look().away == ()
    assert banks.source.state().transfers == (Transfer("sent", 1, 1, 4),)
    assert banks.target.state().transfers == (Transfer("received", 0, 1, 4),)


def test_every_message_may_come_twice(banks: Banks) -> None:
    for _ in range(2):
        assert banks.source.send(4) == Transfer("away", 1, 1, 4)
    assert [banks.target.receive(1, 4).replay for _ in range(2)] == [False, True]
    for _ in range(2):
        banks.source.acknowledge(1)
    assert (banks.source.totals(), banks.target.totals()) == ((3, 0, 0), (7, 0, 0))
    assert banks.source.state().transfers == (Transfer("sent", 1, 1, 4),)


def test_a_send_while_one_is_away_answers_that_one_and_takes_nothing(banks: Banks) -> None:
    banks.source.send(2)
    assert banks.source.send(5) == Transfer("away", 1, 1, 2)
    assert banks.source.totals() == (5, 0, 0)
    assert banks.source.send(1, target=2) == Transfer("away", 2, 1, 1)
    assert banks.source.look().away == (Transfer("away", 1, 1, 2), Transfer("away", 2, 1, 1))


def test_an_old_number_that_comes_late_changes_nothing(banks: Banks) -> None:
    assert [banks.move(1) for _ in range(3)] == [1, 1, 1]
    for number in (1, 2, 3):
        assert banks.target.receive(number, number).replay
    banks.source.send(2)
    for number in (1, 2, 3):
        banks.source.acknowledge(number)
    assert banks.source.look().away == (Transfer("away", 1, 4, 2),)
    assert banks.target.totals() == (6, 0, 0)
    assert banks.target.state().transfers == (Transfer("received", 0, 3, 3),)


def test_acknowledging_a_number_that_was_not_sent_changes_nothing(banks: Banks) -> None:
    banks.source.send(2)
    banks.source.acknowledge(2)
    banks.source.acknowledge(1, target=2)
    assert banks.source.look().away == (Transfer("away", 1, 1, 2),)


def test_acknowledging_at_a_shard_that_has_sent_nothing_changes_nothing(banks: Banks) -> None:
    banks.target.acknowledge(1, target=0)
    assert banks.target.state().transfers == ()


def test_what_a_target_has_lost_comes_in_with_the_next_transfer(banks: Banks) -> None:
    banks.source.send(2)
    banks.source.acknowledge(1)  # it had arrived, and a failover took that back
    lost = banks.source.send(3)
    assert lost is not None
    assert (lost.number, lost.units, lost.sent) == (2, 3, 5)
    assert banks.target.receive(lost.number, lost.sent) == Received(2, 5)
    banks.source.acknowledge(2)
    assert (banks.source.totals(), banks.target.totals()) == ((2, 0, 0), (8, 0, 0))


def test_a_source_that_forgot_a_transfer_gives_those_units_once(banks: Banks) -> None:
    assert banks.target.receive(1, 3) == Received(1, 3)  # a failover took back that they were sent
    sent = banks.source.send(4)
    assert sent is not None
    assert banks.target.receive(sent.number, sent.sent) == Received(1, 1)
    banks.source.acknowledge(1)
    assert banks.source.totals()[0] + banks.target.totals()[0] == 10


def test_a_send_and_a_look_say_what_was_sent_in_all(banks: Banks) -> None:
    banks.move(2)
    for _ in range(2):
        sent = banks.source.send(3)
        assert sent is not None
        assert sent.sent == 5
    assert [one.sent for one in banks.source.look().away] == [5]


def test_what_is_sent_is_at_most_what_is_free(banks: Banks) -> None:
    banks.source.reserved("a", 4)
    assert banks.source.send(100) == Transfer("away", 1, 1, 3)
    assert banks.source.totals() == (0, 4, 0)
    assert banks.source.send(1, target=2) is None
    assert [kind for kind, _ in banks.source.story()] == ["opened", "reserved", "sent"]


def test_nothing_is_sent_when_nothing_is_asked_for(banks: Banks) -> None:
    assert banks.source.send(0) is None
    assert banks.source.state().sequence == 1


def test_units_go_out_of_a_closed_shard_and_into_one(banks: Banks) -> None:
    banks.source.send(2)
    banks.source.close()
    banks.target.close()
    assert banks.target.receive(1, 2) == Received(1, 2)
    banks.source.acknowledge(1)
    assert banks.move(5) == 5
    assert (banks.source.totals(), banks.target.totals()) == ((0, 0, 0), (10, 0, 0))


def test_every_transfer_stands_in_both_ledgers(banks: Banks) -> None:
    banks.move(4)
    banks.move(3)
    sent = [(entry.kind, entry.order_id, entry.quantity, sorted(entry.parts)) for entry in banks.source.ledger(1)]
    assert sent == [("sent", "1:1", 4, [(0, 3), (1, 1)]), ("sent", "1:2", 3, [(1, 1), (2, 2)])]
    got = [(entry.kind, entry.order_id, entry.quantity, entry.parts) for entry in banks.target.ledger(1)]
    assert got == [("received", "0:1", 4, ((0, 2), (1, 2))), ("received", "0:2", 3, ((0, 2), (1, 1)))]


def test_both_ways_at_once_the_numbers_are_their_own(banks: Banks) -> None:
    assert banks.source.send(5) == Transfer("away", 1, 1, 5)
    assert banks.target.send(3, target=0) == Transfer("away", 0, 1, 3)
    banks.source.receive(1, 3, source=1)
    banks.target.receive(1, 5)
    assert (banks.source.totals(), banks.target.totals()) == ((5, 0, 0), (5, 0, 0))


def test_units_of_a_shrunk_shard_are_found_and_come_into_the_segments_there_are(banks: Banks) -> None:
    banks.source.reserved("a", 5)
    banks.source.resize(1)
    banks.target.resize(5)
    assert banks.move(9) == 2
    assert banks.target.state().stock == (2, 2, 1, 0, 0)


def test_no_other_than_an_open_shard_sends_or_receives(side: Side) -> None:
    bank = Bank(side, side.name(), 0)
    for ask in (bank.look, lambda: bank.send(1), lambda: bank.receive(1, 1)):
        with pytest.raises(ShardVanished):
            ask()
    bank.acknowledge(1)
    with pytest.raises(ShardVanished):
        bank.state()


def test_a_look_gives_lapsed_holds_back_sixteen_at_a_time_and_says_whether_more_are_due(side: Side) -> None:
    bank = Bank(side, side.name(), 0)
    bank.open(40, 2)
    bank.reserve_many((Order(f"o{index}", 1) for index in range(40)), hold_ms=SHORT_MS)
    bank.let_short_holds_lapse()
    found = [bank.look() for _ in range(4)]
    assert [(one.available, one.reserved, one.is_more_due) for one in found] == [
        (16, 24, True),
        (32, 8, True),
        (40, 0, False),
        (40, 0, False),
    ]
    assert [one.increases - found[0].increases for one in found] == [0, 1, 2, 2]
    bank.check_books()


def test_increases_grow_with_every_growth_of_what_is_free_and_with_nothing_else(banks: Banks) -> None:
    shop, seen = banks.source, banks.source.increases()

    def grew() -> int:
        nonlocal seen
        before, seen = seen, shop.increases()
        return seen - before

    shop.reserved("a", 1)
    shop.granted("b", 1)
    shop.renew("b")
    shop.confirm("b")
    shop.confirm("b")
    assert grew() == 0
    shop.cancel("a")
    assert grew() == 1
    shop.cancel("a")
    assert grew() == 0
    shop.restock(3, "r1")
    assert grew() == 1
    shop.restock(3, "r1")
    shop.withdraw(1, "w1")
    shop.withdraw(100, "w2")
    shop.reserve("too many", 100)
    shop.grant("refused", 100, keep_refusal=True)
    shop.resize(2)
    shop.send(1)
    shop.send(1)
    shop.acknowledge(1)
    assert grew() == 0
    shop.receive(1, 2, source=1)
    assert grew() == 1
    shop.receive(1, 2, source=1)
    assert grew() == 0
    shop.reserved("c", 1, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    shop.expire_due()
    assert grew() == 1
    shop.close()
    shop.side.execute(op.TrimLedger(shop.sku, 0))
    assert grew() == 0


def test_a_repair_of_what_is_free_is_a_growth_and_a_repair_of_what_is_reserved_is_none(banks: Banks) -> None:
    shop = banks.source
    before = shop.increases()
    for name, expected in (("available", 9), ("available", 7)):
        answer = shop.side.execute(op.MendNumber(shop.sku, "total", name, 1 if expected == 9 else 2, expected))
        assert isinstance(answer, Mended)
    assert shop.increases() - before == 1
    for after, expected in ((3, 1), (4, 0)):
        shop.side.execute(op.MendNumber(shop.sku, "total", "reserved", after, expected))
    assert shop.increases() - before == 1


def test_a_trimmed_shard_with_transfers_is_audited_and_goes_on(banks: Banks) -> None:
    banks.move(2)
    for bank in (banks.source, banks.target):
        assert isinstance(bank.side.execute(op.TrimLedger(bank.sku, 0)), Trimmed)
        bank.check_books()
    banks.move(1)
    banks.target.send(1, target=0)
    for bank in (banks.source, banks.target):
        bank.check_books()
        bank.side.execute(op.TrimLedger(bank.sku, 1))
    banks.source.receive(1, 1, source=1)
    assert banks.source.state().transfers == (Transfer("received", 1, 1, 1), Transfer("sent", 1, 2, 3))


@pytest.mark.parametrize("name", ["sent", "received"])
def test_a_total_of_transfers_is_repaired(banks: Banks, name: str) -> None:
    banks.move(2)
    shop = banks.source if name == "sent" else banks.target
    at = shop.state().sequence
    assert isinstance(shop.side.execute(op.MendNumber(shop.sku, "total", name, at, 5)), Mended)
    assert shop.drift() == [("total", name), ("sum", "stocked")]
    report, _ = shop.side.run(audit_plan(shop.sku))
    assert shop.side.run(repair_plan(report, LONG_MS, yes=True)).is_clean
    assert between(banks.source.state())[2] == between(banks.target.state())[3] == 2
    banks.move(1)
    assert between(banks.source.state())[2] == between(banks.target.state())[3] == 3
