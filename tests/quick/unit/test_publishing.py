"""The publisher that puts orders into envelopes as they come; what is sent here waits for the test."""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.stock import EnvelopePublisher, outbox
from tests.support.contract.parking import wait_until

DEADLINE = 30.0


@pytest.fixture(autouse=True)
def patient_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a close wait as long as a slow machine needs for what it sends."""
    monkeypatch.setattr(outbox, "CLOSE_SECONDS", DEADLINE)


class Broker:
    """Keeps what is sent, and may be held up or be away."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[str]]] = []
        self.failure: Exception | None = None
        self.begun = threading.Semaphore(0)
        """One permit for each envelope that has reached the broker."""
        self.open = threading.Event()
        self.open.set()

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.begun.release()
        assert self.open.wait(DEADLINE)
        if self.failure is not None:
            raise self.failure
        self.sent.append((sku, list(order_ids)))

    def reached(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.begun.acquire(timeout=DEADLINE)

    @property
    def sizes(self) -> list[int]:
        return [len(order_ids) for _, order_ids in self.sent]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def publisher(broker: Broker) -> Iterator[EnvelopePublisher]:
    with EnvelopePublisher(broker.send) as publisher:
        yield publisher
        broker.open.set()


def ids(count: int, word: str = "o") -> list[str]:
    return [f"{word}{number}" for number in range(count)]


def test_an_idle_publisher_sends_an_order_at_once_and_alone(publisher: EnvelopePublisher, broker: Broker) -> None:
    for number in range(3):
        publisher.put("mug", [f"o{number}"])
        broker.reached()
        wait_until(lambda number=number: len(broker.sent) == number + 1)  # type: ignore[misc]  # a default argument
    assert broker.sent == [("mug", ["o0"]), ("mug", ["o1"]), ("mug", ["o2"])]


def test_what_comes_while_an_envelope_is_sent_goes_together_up_to_the_most(
    publisher: EnvelopePublisher, broker: Broker
) -> None:
    broker.open.clear()
    publisher.put("mug", ["first"])
    broker.reached()
    for order_id in ids(250):
        publisher.put("mug", [order_id])
    broker.open.set()
    broker.reached(3)
    publisher.close()
    assert broker.sizes == [1, 100, 100, 50]
    assert [order_id for _, envelope in broker.sent[1:] for order_id in envelope] == ids(250)


def test_what_is_sent_at_once_is_split_too(broker: Broker) -> None:
    with EnvelopePublisher(broker.send, envelope_max=10) as publisher:
        publisher.send("mug", tuple(ids(25)))
    assert broker.sizes == [10, 10, 5]


def test_skus_are_served_in_turn(publisher: EnvelopePublisher, broker: Broker) -> None:
    broker.open.clear()
    publisher.put("first", ["first"])
    broker.reached()
    publisher.put("mug", ids(250))
    publisher.put("cup", ids(2))
    publisher.put("jar", ids(3))
    broker.open.set()
    publisher.close()
    assert [(sku, len(envelope)) for sku, envelope in broker.sent] == [
        ("first", 1),
        ("mug", 100),
        ("cup", 2),
        ("jar", 3),
        ("mug", 100),
        ("mug", 50),
    ]


def test_orders_of_different_segments_share_no_envelope(publisher: EnvelopePublisher, broker: Broker) -> None:
    broker.open.clear()
    publisher.put("first", ["first"])
    broker.reached()
    publisher.put("mug", ids(2), 0)
    publisher.put("mug", ["x"], 1)
    publisher.put("mug", ["y", "z"], 0)
    publisher.put("mug", ["unknown"])
    broker.open.set()
    publisher.close()
    assert broker.sent[1:] == [("mug", [*ids(2), "y", "z"]), ("mug", ["x"]), ("mug", ["unknown"])]


@pytest.mark.parametrize("failure", [StoreUnavailable("the broker is away"), RuntimeError("a mistake")], ids=repr)
def test_a_failure_is_never_the_callers_but_dropped_counted_and_logged(
    publisher: EnvelopePublisher, broker: Broker, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, outbox.log.name)  # whatever level another library has given the root
    broker.failure = failure
    publisher.put("mug", ids(3))
    broker.reached()
    wait_until(lambda: publisher.dropped_count == 3)
    broker.failure = None
    publisher.put("mug", ["o3"])
    publisher.close()
    assert broker.sent == [("mug", ["o3"])]
    assert publisher.dropped_count == 3
    (record,) = caplog.records
    assert record.getMessage().startswith("3 orders of 'mug' are left to the sweep")


def test_what_is_too_much_to_wait_is_left_to_the_sweep(publisher: EnvelopePublisher, broker: Broker) -> None:
    broker.open.clear()
    publisher.put("mug", ["first"])
    broker.reached()
    publisher.put("mug", ids(outbox.WAITING_MAX))
    publisher.put("mug", ["one more"])
    assert publisher.dropped_count == 1
    broker.open.set()
    publisher.close()
    assert sum(broker.sizes) == 1 + outbox.WAITING_MAX


@pytest.mark.parametrize("envelope_max", [0, 101, True, 1.5, "ten"])
def test_an_envelope_of_a_size_that_cannot_be_is_refused(broker: Broker, envelope_max: Any) -> None:  # noqa: ANN401  # what may be given
    sentence = rf"^envelope_max={envelope_max!r} must be a whole number between 1 and 100$"
    with pytest.raises(InvalidInput, match=sentence):
        EnvelopePublisher(broker.send, envelope_max=envelope_max)


def test_a_close_does_not_wait_for_ever(
    publisher: EnvelopePublisher, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "CLOSE_SECONDS", 0.01)
    broker.open.clear()
    publisher.put("mug", ["first"])
    broker.reached()
    publisher.close()
    assert (broker.sent, publisher.dropped_count) == ([], 0)
