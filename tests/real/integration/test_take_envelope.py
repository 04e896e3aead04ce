"""Envelopes of submitted orders on real servers: two workers at once, and a step that outlasts its worker's time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from segmented.models.submitted import BegunOrder
from segmented.orders import Gate
from segmented.orders.envelopes import EnvelopeReport, WorkTerms
from segmented.stores.redis import RedisStore
from tests.support.workers.envelope_till import EnvelopeSetup, opened
from tests.support.workers.selling import until

pytestmark = pytest.mark.usefixtures("patient_attempts")

LONG = 100.0
RENEWED = WorkTerms(ttl=15, work=15)
"""Times that a worker pushes out after a third of them."""


def test_a_step_that_lasts_longer_than_the_workers_time_keeps_its_orders(store: RedisStore) -> None:
    setup = EnvelopeSetup(opened(store, "in the worker", None), None)
    ids = setup.submit(3)
    told: list[EnvelopeReport] = []

    def step(order: BegunOrder) -> None:
        if order.order.order_id == "o000":
            ends_at = setup.found("o000").until_ms
            until(lambda: setup.found("o000").until_ms > ends_at)  # the worker has got more time
            told.append(setup.take(ids, step=lambda _: None))

    report = setup.take(ids, step=step, terms=RENEWED)
    assert told == [EnvelopeReport(in_hand=ids)]
    assert [one.replay for one in report.settled] == [False] * 3
    assert setup.found("o000").begun == 0
    setup.check(confirmed=3, available=197)


def test_two_workers_with_the_same_envelope_at_once_have_one_effect(
    store: RedisStore, postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(postgres_database, timeout=LONG)
    setup = EnvelopeSetup(opened(store, "in the worker", gate), gate)
    ids = setup.submit(100)
    calls: list[str] = []
    start = threading.Barrier(2)

    def work() -> EnvelopeReport:
        start.wait(LONG)
        terms = WorkTerms(ttl=LONG, segment_timeout=LONG)
        return setup.take(ids, step=lambda order: calls.append(order.order.order_id), terms=terms)

    with ThreadPoolExecutor(2) as workers:
        reports = [future.result(LONG) for future in [workers.submit(work) for _ in range(2)]]
    assert sorted(calls) == ids
    fresh = [one.order_id for report in reports for one in report.settled if not one.replay]
    assert sorted(fresh) == ids
    assert setup.waiting() == 0
    setup.check(confirmed=100, available=100)
