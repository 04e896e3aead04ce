"""Requests with an idempotency key, over real HTTP servers in both colours. What it is in Stripe and the IETF draft."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from segmented.dedup.web import WebOptions, all_clients, every_status, request_key
from tests.fixtures.stores import ASYNC
from tests.support.contract.dedup.dedup_calls import Calls
from tests.support.contract.dedup.web_servers import SOON, CountingHandler, OnceServer, Reply, Response, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.stores import Side

    Open = Callable[..., OnceServer]


@pytest.fixture
def open_shop(waiting_side: Side) -> Iterator[Open]:
    servers: list[OnceServer] = []

    def made(handler: Callable[[Seen], Reply], **options: Any) -> OnceServer:  # noqa: ANN401  # those of WebOptions
        servers.append(OnceServer(waiting_side, handler, WebOptions(**{"scope": all_clients, **options})))
        return servers[-1]

    yield made
    for server in servers:
        server.close()


def charging(status: int, *, parts: tuple[bytes, ...] = (b"done",)) -> Callable[[int, Seen], Reply]:
    return lambda _, __: Reply(status, parts)


def test_a_repeat_gets_the_stored_answer_and_is_told_so(open_shop: Open) -> None:
    handler = CountingHandler(
        lambda number, _: Reply(
            201,
            (b"charge ", str(number).encode()),
            (("Content-Type", "text/plain"), ("Location", "/charges/7"), ("Set-Cookie", "s=1"), ("X-Trace", "t")),
        )
    )
    server = open_shop(handler)
    first, second = server.ask(), server.ask()
    assert (first.status, first.body, first.is_replayed) == (201, b"charge 1", False)
    assert (first.headers["set-cookie"], first.headers["x-trace"]) == ("s=1", "t")
    assert (second.status, second.body, second.is_replayed) == (201, b"charge 1", True)
    assert (second.headers["content-type"], second.headers["location"]) == ("text/plain", "/charges/7")
    assert "set-cookie" not in second.headers
    assert "x-trace" not in second.headers
    assert [seen.body for seen in handler.served] == [b'{"units": 1}']


def test_headers_of_ones_own_choice_are_kept(open_shop: Open) -> None:
    server = open_shop(
        CountingHandler(lambda _, __: Reply(200, (b"x",), (("X-Trace", "t"), ("Location", "/7")))), headers=["x-trace"]
    )
    server.ask()
    again = server.ask()
    assert (again.headers["x-trace"], "location" in again.headers) == ("t", False)


def test_other_keys_and_requests_without_one_run_each(open_shop: Open) -> None:
    server = open_shop(CountingHandler())
    found = [server.ask("a"), server.ask("b"), server.ask(None), server.ask(None), server.ask("a")]
    assert [got.body[-1:] for got in found] == [b"1", b"2", b"3", b"4", b"1"]


def test_a_quoted_key_is_the_same_as_a_plain_one(open_shop: Open) -> None:
    server = open_shop(CountingHandler())
    found = [
        server.ask(key) for key in ("8e03978e-40d5", '"8e03978e-40d5"', '"8e03978e-40d5";v=1', '"a b"', r'"a\" \\b"')
    ]
    assert [(got.body[-1:], got.is_replayed) for got in found] == [
        (b"1", False),
        (b"1", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]


@pytest.mark.parametrize(
    "key", ["", '""', "a b", 'a"b', '"a', "a,b", '"a", "b"', "a\\b", "k" * 256, '"k', "\xe9", '"\xe9"', '"a\\b"', '" "']
)
def test_a_malformed_key_is_400_and_nothing_runs(open_shop: Open, key: str) -> None:
    handler = CountingHandler()
    got = open_shop(handler).ask(key)
    assert (got.status, got.code, handler.served) == (400, "malformed_key", [])


def test_two_keys_are_400_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON)
    line.putrequest("POST", "/charges")
    for key in ("a", "b"):
        line.putheader("Idempotency-Key", key)
    line.putheader("Content-Length", "0")
    line.endheaders()
    assert (line.getresponse().status, handler.served) == (400, [])
    line.close()


def test_a_missing_key_is_400_where_one_is_required(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, is_required=True)
    got = server.ask(None)
    assert (got.status, got.code, handler.served) == (400, "missing_key", [])
    assert server.ask(None, method="GET").status == 201
    assert server.ask().status == 201


def test_only_the_chosen_methods_and_paths_are_run_once(open_shop: Open) -> None:
    server = open_shop(CountingHandler(), methods=["post", "PUT"], paths=["/charges", "/refunds/*"])
    asked = [
        ("POST", "/charges"),
        ("PUT", "/charges"),
        ("POST", "/refunds/7"),
        ("PATCH", "/charges"),
        ("POST", "/chargesx"),
    ]
    assert [(server.ask(method=m, path=p).status, server.ask(method=m, path=p).is_replayed) for m, p in asked] == [
        (201, True),
        (201, True),
        (201, True),
        (201, False),
        (201, False),
    ]


def test_by_default_posts_and_patches_to_all_paths_are_and_a_get_is_not(open_shop: Open) -> None:
    server = open_shop(CountingHandler())
    for method in ("POST", "PATCH", "GET", "PUT", "DELETE"):
        server.ask(method=method)
    assert [server.ask(method=m).is_replayed for m in ("POST", "PATCH", "GET", "PUT", "DELETE")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("tenant", ["", " ", None])
def test_a_request_whose_scope_is_empty_is_400_and_nothing_runs(open_shop: Open, tenant: str | None) -> None:
    handler = CountingHandler()
    server = open_shop(handler, scope=lambda request: request.header("X-Tenant"))
    answer = server.ask(headers={} if tenant is None else {"X-Tenant": tenant})
    assert (answer.status, answer.code, len(handler.served)) == (400, "missing_scope", 0)


def test_an_answer_with_very_long_headers_is_sent_whole_and_repeats_are_told(open_shop: Open) -> None:
    link = ("Link", "x" * 20_000)
    server = open_shop(CountingHandler(lambda _, __: Reply(201, (b"{}",), (link,))))
    first, repeat = server.ask(), server.ask()
    assert (first.status, first.headers["link"]) == (201, link[1])
    assert (repeat.status, repeat.code) == (409, "answer_not_kept")


def test_a_key_belongs_to_its_method_its_path_and_its_tenant(open_shop: Open) -> None:
    server = open_shop(CountingHandler(), scope=lambda request: request.header("X-Tenant"))
    found = [
        server.ask(headers={"X-Tenant": "a"}),
        server.ask(path="/refunds", headers={"X-Tenant": "a"}),
        server.ask(method="PATCH", headers={"X-Tenant": "a"}),
        server.ask(headers={"X-Tenant": "b"}),
        server.ask(headers={"X-Tenant": "c"}),
        server.ask(headers={"X-Tenant": "b"}),
    ]
    assert [got.body[-1:] for got in found] == [b"1", b"2", b"3", b"4", b"5", b"4"]


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"units": 2}'},
        {"headers": {"Content-Type": "text/plain"}},
        {"path": "/charges?dry=1"},
        {"body": b""},
    ],
    ids=["body", "content type", "query", "no body"],
)
def test_f22_another_payload_under_the_key_is_422(open_shop: Open, other: dict[str, Any]) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    server.ask()
    got = server.ask(**other)
    assert (got.status, got.code, len(handler.served)) == (422, "other_payload", 1)
    assert server.ask().is_replayed


def test_the_payload_can_be_a_part_of_the_request(open_shop: Open) -> None:
    server = open_shop(CountingHandler(), payload=lambda _, body: body.partition(b" trace ")[0])
    assert server.ask(body=b"units 1 trace a").status == 201
    assert server.ask(body=b"units 1 trace b").is_replayed
    assert server.ask(body=b"units 2 trace a").status == 422


def test_a_request_in_flight_is_409_with_retry_after_and_then_replayed(open_shop: Open, waiting_side: Side) -> None:
    handler = CountingHandler(gate=threading.Event())
    server = open_shop(handler, retry_after=3)
    first = waiting_side.start(server.ask)
    assert handler.began.wait(SOON)
    got = server.ask()
    assert (got.status, got.code, got.headers["retry-after"]) == (409, "in_flight", "3")
    assert server.ask(body=b"other").status == 422
    assert handler.gate is not None
    handler.gate.set()
    assert (first.result(SOON).body, server.ask().is_replayed, len(handler.served)) == (b"charge 1", True, 1)


def test_sixteen_clients_at_once_get_one_answer_where_repeats_wait(open_shop: Open, waiting_side: Side) -> None:
    handler = CountingHandler()
    server = open_shop(handler, timeout=SOON)
    found: list[Response] = [one.result(SOON) for one in [waiting_side.start(server.ask) for _ in range(16)]]
    assert {got.body for got in found} == {b"charge 1"}
    assert sorted(got.is_replayed for got in found) == [False, *[True] * 15]
    assert len(handler.served) == 1


def test_sixteen_clients_at_once_are_one_run_where_repeats_do_not_wait(open_shop: Open, waiting_side: Side) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    found: list[Response] = [one.result(SOON) for one in [waiting_side.start(server.ask) for _ in range(16)]]
    assert {got.status for got in found} <= {201, 409}
    assert len(handler.served) == 1


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [(200, True), (302, True), (404, True), (422, True), (429, False), (401, False), (500, False), (503, False)],
)
def test_answers_below_500_are_kept_but_for_those_that_ask_for_the_request_once_more(
    open_shop: Open,
    status: int,
    is_kept: bool,  # noqa: FBT001  # a row of the table
) -> None:
    handler = CountingHandler(charging(status, parts=(b"a", b"b")))
    server = open_shop(handler)
    assert [(got.status, got.body, got.is_replayed) for got in (server.ask(), server.ask())] == [
        (status, b"ab", False),
        (status, b"ab", is_kept),
    ]
    assert len(handler.served) == (1 if is_kept else 2)


def test_every_answer_is_kept_where_that_is_asked_for(open_shop: Open) -> None:
    handler = CountingHandler(charging(500))
    server = open_shop(handler, keeps=every_status)
    assert [(got.status, got.is_replayed) for got in (server.ask(), server.ask())] == [(500, False), (500, True)]


def failing(number: int, _: Seen) -> Reply:
    if number == 1:
        raise ZeroDivisionError
    return Reply(201)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_raises_is_run_again_by_a_repeat(open_shop: Open) -> None:
    handler = CountingHandler(failing)
    server = open_shop(handler)
    assert (server.ask().status, server.ask().status, len(handler.served)) == (500, 201, 2)


def test_a_handler_that_raises_is_not_run_again_where_every_answer_is_kept(open_shop: Open) -> None:
    handler = CountingHandler(failing)
    server = open_shop(handler, keeps=every_status)
    first, second = server.ask(), server.ask()
    assert (first.status, second.status, second.code, second.is_replayed) == (500, 500, "failed", True)
    assert len(handler.served) == 1


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_is_replayed_without_one(open_shop: Open, status: int) -> None:
    server = open_shop(CountingHandler(lambda _, __: Reply(status, (), ())))
    server.ask()
    again = server.ask()
    assert (again.status, again.body, again.is_replayed) == (status, b"", True)
    assert again.headers.get("content-length", "0") == "0"  # some servers say so by themselves


def test_an_answer_too_large_to_keep_is_sent_whole_and_repeats_are_told(open_shop: Open) -> None:
    handler = CountingHandler(charging(200, parts=(b"x" * 60,) * 5))
    server = open_shop(handler, answer_max=100)
    assert server.ask().body == b"x" * 300
    got = server.ask()
    assert (got.status, got.code, "retry-after" in got.headers, len(handler.served)) == (
        409,
        "answer_not_kept",
        False,
        1,
    )


def test_an_answer_of_just_the_size_is_kept(open_shop: Open) -> None:
    server = open_shop(CountingHandler(charging(200, parts=(b"x" * 60, b"y" * 40))), answer_max=100)
    assert (server.ask().body, server.ask().is_replayed) == (b"x" * 60 + b"y" * 40, True)


def test_an_answer_that_the_record_cannot_hold_is_sent_and_repeats_are_told(waiting_side: Side) -> None:
    handler = CountingHandler(charging(200, parts=(b"x" * 900,)))
    server = OnceServer(waiting_side, handler, WebOptions(scope=all_clients), size_max=500)
    assert server.ask().body == b"x" * 900
    assert (server.ask().code, len(handler.served)) == ("answer_not_kept", 1)
    server.close()


def test_a_request_too_large_to_compare_is_413_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100)
    got = server.ask(body=b"x" * 101)
    assert (got.status, got.code, handler.served) == (413, "too_large", [])
    assert server.ask(body=b"x" * 100).status == 201
    assert server.ask(None, body=b"x" * 101).status == 201


def test_a_request_too_large_to_compare_is_run_unprotected_where_that_is_asked_for(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100, large_requests="run")
    body = bytes(range(256))
    assert [server.ask(body=body).is_replayed for _ in range(2)] == [False, False]
    assert [seen.body for seen in handler.served] == [body, body]


@pytest.mark.parametrize("waiting_side", ASYNC, ids=str, indirect=True)  # wsgiref reads no chunks
def test_a_body_in_chunks_is_compared_and_reaches_the_handler(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100, large_requests="run")
    assert server.ask(body=iter([b"a" * 40, b"b" * 40])).status == 201
    assert server.ask(body=iter([b"a" * 40, b"b" * 40])).is_replayed
    assert server.ask(body=iter([b"a" * 40, b"c" * 40])).status == 422
    assert server.ask(body=iter([b"a" * 80, b"b" * 80])).status == 201
    assert [seen.body for seen in handler.served] == [b"a" * 40 + b"b" * 40, b"a" * 80 + b"b" * 80]


def half_a_request(port: int, said: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=SOON)
    line.sendall(said)
    return line


REQUEST = b"POST /charges HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: k-1\r\n"


def test_a_client_that_goes_away_finds_its_answer_when_it_comes_back(open_shop: Open) -> None:
    handler = CountingHandler(gate=threading.Event())
    server = open_shop(handler, timeout=SOON)
    line = half_a_request(server.port, REQUEST + b'Content-Length: 12\r\n\r\n{"units": 1}')
    assert handler.began.wait(SOON)
    line.close()
    assert handler.gate is not None
    handler.gate.set()
    got = server.ask()
    assert (got.body, got.is_replayed, len(handler.served)) == (b"charge 1", True, 1)


def test_a_client_that_goes_away_in_the_middle_of_its_request_has_nothing_run(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    half_a_request(server.port, REQUEST + b'Content-Length: 99\r\n\r\n{"units').close()
    got = server.ask()
    assert (got.status, got.is_replayed, len(handler.served)) == (201, False, 1)


def test_an_operator_finds_and_frees_the_record_of_a_request(open_shop: Open, waiting_side: Side) -> None:
    server = open_shop(CountingHandler(), scope=lambda _: "tenant 7")
    server.ask()
    calls = Calls(waiting_side, server.namespace)
    key = request_key("k-1", method="post", path="/charges", scope="tenant 7")
    assert calls.read(key).outcome.kind == "value"
    calls.free(key)
    assert server.ask().body == b"charge 2"


def test_a_request_that_was_freed_in_the_middle_still_gets_its_answer_and_nothing_is_kept(
    open_shop: Open, waiting_side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    handler = CountingHandler(gate=threading.Event())
    server = open_shop(handler)
    first = waiting_side.start(server.ask)
    assert handler.began.wait(SOON)
    key = request_key("k-1", method="POST", path="/charges")
    Calls(waiting_side, server.namespace).free(key)
    assert handler.gate is not None
    with caplog.at_level(logging.DEBUG):
        handler.gate.set()
        assert first.result(SOON).body == b"charge 1"
    (told,) = [vars(one) for one in caplog.records if one.name == "segmented.dedup.web"]
    assert (told["msg"], told["kind"], told["key"]) == ("idempotency.not_kept", "RunLost", key)
    assert server.ask().body == b"charge 2"
