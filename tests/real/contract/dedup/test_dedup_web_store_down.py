"""Requests with an idempotency key while the store is away, and what the log tells then: nothing of bodies or keys."""

import logging

import pytest

from segmented.dedup.web import WebOptions, all_clients, request_key
from segmented.protocol.wire import load_script
from tests.fixtures.stores import Side
from tests.support.contract.dedup.dedup_calls import SOON
from tests.support.contract.dedup.web_apps import CountingHandler, OnceApp, Reply, Seen
from tests.support.proxy import Proxy

BEGIN, FINISH = (load_script(name).sha.encode() for name in ("begin_run", "finish_run"))
SECRET = b'{"card": "visa-4111"}'
KEY = "secret-key"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Return what the middleware logged, after looking that nothing logged anything that is the client's own."""
    for record in caplog.records:
        shown = f"{record.getMessage()} {vars(record)}"
        assert "visa" not in shown
        assert KEY not in shown
    found = [record for record in caplog.records if record.name == "segmented.dedup.web"]
    return [(record.getMessage(), vars(record)["kind"], vars(record)["key"]) for record in found]


def test_a_request_is_refused_with_503_while_the_store_is_away(
    far_side: Side, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    handler = CountingHandler()
    server = OnceApp(far_side, handler, WebOptions(scope=all_clients))
    proxy.vanish()
    with caplog.at_level(logging.DEBUG):
        got = server.ask(KEY, body=SECRET)
    proxy.come_back()
    assert (got.status, got.code, got.headers["retry-after"], handler.served) == (503, "store_down", "1", [])
    key = request_key(KEY, method="POST", path="/charges")
    assert told(caplog) == [("idempotency.store_down", "StoreUnavailable", key)]
    assert server.ask(KEY, body=SECRET).status == 201


def test_a_request_without_a_key_needs_no_store(far_side: Side, proxy: Proxy) -> None:
    server = OnceApp(far_side, CountingHandler(), WebOptions(scope=all_clients))
    proxy.vanish()
    assert (server.ask().status, server.ask("k", method="GET").status) == (201, 201)


def test_a_request_runs_unprotected_while_the_store_is_away_if_that_is_asked_for(
    far_side: Side, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    handler = CountingHandler()
    server = OnceApp(far_side, handler, WebOptions(scope=all_clients, when_down="run"))
    proxy.vanish()
    with caplog.at_level(logging.DEBUG):
        assert [server.ask(KEY, body=SECRET).body for _ in range(2)] == [b"charge 1", b"charge 2"]
    assert [event for event, _, _ in told(caplog)] == ["idempotency.store_down"] * 2
    assert handler.served[0].body == SECRET


def test_an_answer_that_could_not_be_kept_is_sent_and_kept_when_the_store_is_back(
    far_side: Side, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    def losing_the_store(number: int, _: Seen) -> Reply:
        if number == 1:
            proxy.vanish()
        return Reply(201, (f"charge {number}".encode(),))

    server = OnceApp(far_side, CountingHandler(losing_the_store), WebOptions(scope=all_clients, timeout=SOON), ttl=2.0)
    with caplog.at_level(logging.DEBUG):
        assert server.ask(KEY, body=SECRET).body == b"charge 1"
    assert [(event, kind) for event, kind, _ in told(caplog)] == [("idempotency.not_kept", "StoreUnavailable")]
    proxy.come_back()
    assert server.ask(KEY, body=SECRET).body == b"charge 1"


def test_lost_replies_make_no_second_run(far_side: Side, proxy: Proxy) -> None:
    handler = CountingHandler()
    server = OnceApp(far_side, handler, WebOptions(scope=all_clients))
    proxy.swallow_replies(1, to=BEGIN)
    assert server.ask("a").body == b"charge 1"
    proxy.swallow_replies(1, to=FINISH)
    assert server.ask("b").body == b"charge 2"
    assert [server.ask(key).is_replayed for key in ("a", "b")] == [True, True]
    assert (proxy.swallowed, len(handler.served)) == (2, 2)
