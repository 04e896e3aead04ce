"""The publisher of envelopes, and its report."""

import pytest

from segmented.stock import EnvelopePublisher


def test_without_a_thread_orders_are_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    sent: list[str] = []
    with EnvelopePublisher(lambda _, order_ids: sent.extend(order_ids)) as publisher:
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", refuse)
            publisher.put("mug", ["a", "b"])
        assert publisher.dropped_count == 2
        publisher.put("mug", ["c"])
    assert sent == ["c"]
