"""The publisher of envelopes, and its report."""

import pytest

from segmented.models import Settled
from segmented.orders.envelopes import EnvelopeReport
from segmented.stock import EnvelopePublisher


def test_without_a_thread_orders_are_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    sent: list[str] = []
    with EnvelopePublisher(lambda _, order_ids: sent.extend(order_ids)) as publisher:
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", refuse)
            publisher.put("mug", ["a", "b"])
        assert publisher.dropped_count == 2
        publisher.put("mug", ["c"])
    assert sent == ["c"]


def test_a_summary_has_the_number_of_orders_of_each_outcome_that_occurred() -> None:
    settled = [Settled(f"o-{index}", "confirmed", 1, 0, None, 9, replay=False) for index in range(98)]
    report = EnvelopeReport(settled=settled, put_off={"a": "busy", "b": "busy"}, unknown=["c"])
    assert report.counts() == {"settled": 98, "put_off": 2, "unknown": 1}
    assert report.summary() == "98 settled, 2 put_off, 1 unknown"
    assert EnvelopeReport().summary() == ""
