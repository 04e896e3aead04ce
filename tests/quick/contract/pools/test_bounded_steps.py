"""A step is bounded by the parts of its orders and by the bytes of its reply, and a batch is answered as before."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.ledger_lines import line_of
from segmented.models import Busy, Order, Reserved, Settled
from segmented.models.submitted import BegunOrder, TooManyOthers
from tests.support.contract.orders.submitting import begin_and_die, queue, take

if TYPE_CHECKING:
    from segmented.models import LedgerEntry
    from tests.support.contract.pools.shop import Shop

SEGMENTS: Final = 4_096
PAGE_BYTES: Final = 262_144
NAMES: Final = "kindat_uslineschain"
FOURS: Final = tuple(Order(f"o{index}", 4) for index in range(1_000))
IDS: Final = tuple(order.order_id for order in FOURS)


def test_1000_orders_of_4_segments_each_take_6_steps_and_give_back_in_6(shop: Shop) -> None:
    shop.open(SEGMENTS, SEGMENTS)
    taken = [answer for answer in shop.reserve_many(FOURS) if isinstance(answer, Reserved)]
    assert [answer.order_id for answer in taken] == list(IDS)
    assert Counter(answer.sequence for answer in taken) == {2: 167, 3: 167, 4: 167, 5: 167, 6: 167, 7: 165}
    assert {len(answer.parts) for answer in taken} == {4}
    assert len({segment for answer in taken for segment, _ in answer.parts}) == 4_000
    assert shop.totals() == (96, 4_000, 0)
    ended = shop.side.execute(op.SettleMany(shop.sku, "cancelled", IDS))
    given_back = Counter(one.sequence for one in ended if isinstance(one, Settled))
    assert given_back == {8: 167, 9: 167, 10: 167, 11: 167, 12: 167, 13: 165}
    assert shop.totals() == (SEGMENTS, 0, 0)


def test_a_message_of_1000_orders_begins_in_5_steps_under_one_segment_and_token(shop: Shop) -> None:
    shop.open(2_000, 4)
    ids = tuple(f"o{index}" for index in range(1_000))
    queue(shop, *(Order(order_id) for order_id in ids))
    taken = take(shop, *ids)
    begun = [one for one in taken.orders if isinstance(one, BegunOrder)]
    assert [one.order.order_id for one in begun] == list(ids)
    assert Counter(one.sequence for one in begun) == {2: 200, 3: 200, 4: 200, 5: 200, 6: 200}
    assert len({(one.segment, one.fencing_token) for one in begun}) == 1
    assert take(shop, *ids).orders == taken.orders
    another = take(shop, *ids, holder="w2").orders
    assert [isinstance(one, Busy) and one.is_in_hand for one in another] == [True] * 1_000
    assert len({shop.granted(f"g{index}").segment for index in range(3)}) == 3, "three segments are free"
    assert shop.totals() == (997, 1_003, 0)


def test_a_message_of_many_orders_that_were_begun_before_is_too_large_in_each_step(shop: Shop) -> None:
    shop.open(1_000, 1)
    ids = tuple(f"o{index}" for index in range(205))
    queue(shop, *(Order(order_id) for order_id in ids))
    begin_and_die(shop, ids[-1])
    found = take(shop, *ids).orders
    assert [type(one) for one in found[:-1]] == [BegunOrder] * 204
    assert isinstance(found[-1], TooManyOthers)


def test_holds_of_many_parts_lapse_a_few_in_a_step(shop: Shop) -> None:
    shop.open(600, 600)
    for order_id in ("a", "b", "c"):
        shop.reserved(order_id, 600, hold_ms=0)
        shop.side.execute(op.Restock(shop.sku, f"for {order_id}", 600))
    steps = []
    is_more_due = True
    while is_more_due:
        settled, is_more_due = shop.side.execute(op.ExpireDue(shop.sku, 100))
        steps.append([one.order_id for one in settled])
    assert steps == [["a", "b"], ["c"]]
    assert shop.totals() == (2_400, 0, 0)


def bytes_of(entries: list[LedgerEntry]) -> int:
    """Bytes of the fields of one change: those of its lines are joined by newlines."""
    head = f"{NAMES}{entries[0].kind}{entries[0].at_us}{entries[0].chain}"
    return len(head) + len("\n".join(map(line_of, entries)).encode())


def test_a_page_of_the_ledger_ends_with_the_change_that_reaches_256_kib(shop: Shop) -> None:
    shop.open(10**6, 20)
    for batch in range(15):
        shop.reserve_many([Order(f"{'long name ' * 20}{batch}-{index}", 1) for index in range(200)])
    pages: list[tuple[LedgerEntry, ...]] = []
    while page := shop.side.execute(op.ReadLedger(shop.sku, pages[-1][-1].sequence if pages else 0, 1_000)):
        pages.append(page)
    sizes = [[bytes_of(list(group)) for _, group in groupby(page, lambda one: one.sequence)] for page in pages]
    assert all(sum(page[:-1]) < PAGE_BYTES <= sum(page) for page in sizes[:-1])
    found = Counter(entry.sequence for page in pages for entry in page)
    assert found == {1: 1, **dict.fromkeys(range(2, 17), 200)}
    assert len(pages) == 3


def test_records_of_thousands_of_parts_are_read_in_several_replies(shop: Shop) -> None:
    shop.open(SEGMENTS, SEGMENTS)
    for index in range(10):
        shop.reserved(f"o{index}", SEGMENTS)
        shop.side.execute(op.Restock(shop.sku, f"r{index}", SEGMENTS))
    asked = tuple(f"o{index}" for index in range(12))
    records = shop.side.execute(op.ReadOrders(shop.sku, asked))
    assert [record and record.order_id for record in records] == [*asked[:10], None, None]
    assert {len(record.parts) for record in records if record} == {SEGMENTS}
    inspected = shop.side.execute(op.InspectOrders(shop.sku, asked))
    assert [one.order_id for one in inspected] == list(asked)
    assert [one.raw is not None for one in inspected] == [True] * 10 + [False] * 2
