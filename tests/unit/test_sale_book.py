from __future__ import annotations

from segmented.celery.selling.book import PUBLICATIONS_MAX, Book, Outcome
from segmented.celery.selling.orders_file import FileOrder
from segmented.models import Order

CONFIRMED = Outcome("confirmed", 3, 17, 5)
REFUSED = Outcome("refused", None, None, 6)


def book_of(*order_ids: str, republish_after: float = 30.0) -> Book:
    orders = {order_id: FileOrder(Order(order_id, 1), "mug", line) for line, order_id in enumerate(order_ids, start=2)}
    return Book(orders, republish_after=republish_after)


def ids(lines: list[FileOrder]) -> list[str]:
    return [line.order.order_id for line in lines]


def test_orders_are_published_once_in_the_files_order() -> None:
    book = book_of("a", "b", "c")
    assert ids(book.fresh(2, 0.0)) == ["a", "b"]
    assert ids(book.fresh(2, 0.0)) == ["c"]
    assert ids(book.fresh(2, 0.0)) == []
    assert (book.undecided, book.under_way, book.is_over) == (3, 3, False)


def test_what_was_decided_before_is_counted_as_replayed_and_not_published() -> None:
    book = book_of("a", "b", "c")
    book.begin({"a": CONFIRMED, "c": REFUSED})
    assert (book.replayed, book.counts["confirmed"], book.counts["refused"]) == (2, 1, 1)
    assert ids(book.fresh(10, 0.0)) == ["b"]


def test_an_outcome_counts_once_and_those_of_others_do_not() -> None:
    book = book_of("a", "b")
    book.fresh(10, 0.0)
    assert book.decide([("a", CONFIRMED), ("a", REFUSED), ("z", CONFIRMED)], 1.0) == 1
    assert book.outcomes == {"a": CONFIRMED}
    assert (book.counts["confirmed"], book.counts["refused"], book.undecided) == (1, 0, 1)


def test_a_long_queue_alone_repeats_nothing() -> None:
    book = book_of(*(f"o-{number}" for number in range(100)))
    book.fresh(100, 0.0)
    for number in range(99):  # one every 20 s, in order: the last one waits for 2,000 s
        book.decide([(f"o-{number}", CONFIRMED)], 20.0 * number)
        assert book.overdue(20.0 * number) == []


def test_an_overtaken_order_is_published_again_after_the_stated_time() -> None:
    book = book_of("lost", "b", "c")
    book.fresh(10, 0.0)
    book.decide([("b", CONFIRMED)], 1.0)
    assert ids(book.overdue(1.0)) == []
    book.decide([("c", CONFIRMED)], 20.0)
    assert ids(book.overdue(30.9)) == []
    assert ids(book.overdue(31.0)) == ["lost"]
    assert (book.published_again, book.under_way) == (1, 1)
    assert ids(book.overdue(31.1)) == []


def test_when_nothing_is_decided_for_the_stated_time_everything_under_way_is_published_again() -> None:
    book = book_of("a", "b")
    book.fresh(10, 0.0)
    assert ids(book.overdue(29.9)) == []
    assert ids(book.overdue(30.0)) == ["a", "b"]


def test_an_order_is_published_five_times_at_most() -> None:
    book = book_of("a")
    book.fresh(1, 0.0)
    published = 1
    for round_number in range(1, 10):
        published += len(book.overdue(30.0 * round_number))
    assert published == PUBLICATIONS_MAX == 5
    assert (book.is_over, book.undecided) == (True, 1)


def test_an_order_that_was_given_up_can_still_be_decided() -> None:
    book = book_of("a", "b")
    book.fresh(2, 0.0)
    for round_number in range(1, 6):
        book.overdue(30.0 * round_number)
    assert book.decide([("b", CONFIRMED)], 151.0) == 1
    assert book.undecided == 1


def test_pools_with_orders_under_way_are_named_and_no_others() -> None:
    orders = {
        "a": FileOrder(Order("a", 1), "mug", 2),
        "b": FileOrder(Order("b", 1), "cup", 3),
        "c": FileOrder(Order("c", 1), "jug", 4),
    }
    book = Book(orders, republish_after=30.0)
    book.fresh(2, 0.0)
    assert book.skus_under_way() == ["mug", "cup"]
    book.decide([("a", CONFIRMED)], 1.0)
    assert book.skus_under_way() == ["cup"]
