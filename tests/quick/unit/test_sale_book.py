from __future__ import annotations

from segmented.celery.selling.book import Book, Outcome
from segmented.celery.selling.orders_file import FileOrder
from segmented.models import Order

CONFIRMED = Outcome("confirmed", 3, 17, 5)
REFUSED = Outcome("refused", None, None, 6)
A = ("mug", "a")


def book_of(*order_ids: str) -> Book:
    lines = (FileOrder(Order(order_id, 1), "mug", line) for line, order_id in enumerate(order_ids, 2))
    return Book({line.key: line for line in lines})


def ids(fresh: dict[str, list[FileOrder]]) -> list[str]:
    return [line.order.order_id for lines in fresh.values() for line in lines]


def test_orders_are_submitted_once_in_the_files_order() -> None:
    book = book_of("a", "b", "c")
    assert ids(book.fresh(2)) == ["a", "b"]
    assert ids(book.fresh(2)) == ["c"]
    assert ids(book.fresh(2)) == []
    assert (book.undecided, book.under_way, book.is_over) == (3, 3, False)


def test_a_window_that_is_full_takes_no_order() -> None:
    book = book_of("a", "b")
    assert ids(book.fresh(-1)) == []
    assert ids(book.fresh(9)) == ["a", "b"]


def test_what_was_decided_before_is_counted_as_replayed_and_not_submitted() -> None:
    book = book_of("a", "b", "c")
    book.begin({A: CONFIRMED, ("mug", "c"): REFUSED})
    assert (book.replayed, book.counts["confirmed"], book.counts["refused"]) == (2, 1, 1)
    assert ids(book.fresh(10)) == ["b"]


def test_an_outcome_counts_once_and_those_of_others_do_not() -> None:
    book = book_of("a", "b")
    book.fresh(10)
    assert book.decide([(A, CONFIRMED), (A, REFUSED), (("mug", "z"), CONFIRMED), (("cup", "a"), CONFIRMED)]) == 1
    assert book.outcomes == {A: CONFIRMED}
    assert (book.counts["confirmed"], book.counts["refused"], book.undecided) == (1, 0, 1)


def test_an_order_that_was_given_up_is_not_waited_for_and_can_still_be_decided() -> None:
    book = book_of("a", "b")
    book.fresh(2)
    book.give_up("mug", ["b", "z"])
    book.give_up("cup", ["c"])
    assert (book.under_way, book.is_over, book.undecided) == (1, False, 2)
    assert book.decide([(A, CONFIRMED)]) == 1
    assert (book.is_over, book.undecided) == (True, 1)
    assert book.decide([(("mug", "b"), CONFIRMED)]) == 1
    assert (book.is_over, book.undecided) == (True, 0)


def test_pools_with_orders_under_way_are_named_and_no_others() -> None:
    lines = [
        FileOrder(Order("a", 1), "mug", 2),
        FileOrder(Order("a", 1), "cup", 3),
        FileOrder(Order("c", 1), "jug", 4),
    ]
    book = Book({line.key: line for line in lines})
    assert {sku: len(lines) for sku, lines in book.fresh(2).items()} == {"mug": 1, "cup": 1}
    assert book.skus_under_way() == ["mug", "cup"]
    book.decide([(A, CONFIRMED)])
    assert book.skus_under_way() == ["cup"]
