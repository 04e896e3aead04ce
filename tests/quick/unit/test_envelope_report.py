"""The result of a worker's task for an envelope: one short text."""

from __future__ import annotations

from segmented.models import Settled
from segmented.orders.envelope_report import EnvelopeReport


def test_a_summary_has_the_number_of_orders_of_each_outcome_that_occurred() -> None:
    settled = [Settled(f"o-{index}", "confirmed", 1, 0, None, 9, replay=False) for index in range(98)]
    report = EnvelopeReport(settled=settled, put_off={"a": "busy", "b": "busy"}, unknown=["c"])
    assert report.counts() == {"settled": 98, "put_off": 2, "unknown": 1}
    assert report.summary() == "98 settled, 2 put_off, 1 unknown"
    assert EnvelopeReport().summary() == ""
