"""A failure that all orders of a pool share is one line of the log, with a count."""

import pytest

from segmented.celery.tasks import RepeatedLines


def test_a_database_that_is_away_is_a_line_for_each_pool_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    lines = RepeatedLines(now=lambda: now[0])
    for _ in range(20):  # two minutes, an attempt of 3,000 orders in 30 envelopes every 6 s
        for _ in range(30):
            lines.warn_each("mug", ["the database is away"] * 99 + ["no segment is free"])
        now[0] += 6.0
    lines.warn("plate", "the database is away", 1)
    away = [message for message in caplog.messages if "'mug'" in message and "away" in message]
    assert away[0] == "pool 'mug': 99 orders are tried again later: the database is away"
    assert away[1] == f"pool 'mug': {29 * 99 + 30 * 99 + 99} orders are tried again later: the database is away"
    assert len(away) == 10
    assert len(caplog.messages) == 21
