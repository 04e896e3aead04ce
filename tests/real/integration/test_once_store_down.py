"""Deduplicated tasks whose records cannot be reached, at publication and in the worker, under both settings."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import redis

from segmented.dedup.celery.settings import close_stores
from segmented.errors import InvalidInput, StoreError, StoreRefused, StoreUnavailable
from segmented.masking import masked
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until
from tests.support.servers.nodes import free_ports
from tests.support.workers.once_app import build
from tests.support.workers.once_workers import OnceSide, close_app

SOON = 60
HANGS = 30
"""Seconds in which a server that hangs is asked four times, with the limit; without it, each time takes 10 s."""


@contextmanager
def task_elsewhere(side: OnceSide, records: str, **conf: object) -> Iterator[Any]:
    """The task `kept` of an app whose records are at that address."""
    app = build(replace(side.setup, records=records, conf=conf))
    yield app.tasks["kept"]
    close_app(app)


def nowhere() -> str:
    return f"redis://127.0.0.1:{free_ports(1)[0]}/2"


def test_a_publisher_that_cannot_reach_the_records_refuses_and_publishes_nothing(shared_once: OnceSide) -> None:
    with task_elsewhere(shared_once, nowhere()) as task, pytest.raises(StoreUnavailable):
        task.delay("down-refuse")
    shared_once.wait_for(shared_once.is_quiet)
    assert shared_once.runs("down-refuse") == 0


def test_a_publisher_that_is_to_run_anyway_publishes_and_the_worker_checks_again(shared_once: OnceSide) -> None:
    with task_elsewhere(shared_once, nowhere(), once_when_down="run") as task:
        handles = [task.delay("down-run", 1) for _ in range(3)]
        assert len(set(handles)) == 3
        assert [handle.get(timeout=SOON) for handle in handles] == [["down-run", 1]] * 3
    assert shared_once.runs("down-run") == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("pasword=x", "there is no option pasword; did you mean password?"),
        ("socket_timeout=abc", "the option socket_timeout should be a number of seconds, 0.001 or more"),
    ],
)
def test_an_address_that_is_wrong_is_no_server_that_is_down(shared_once: OnceSide, option: str, reason: str) -> None:
    records = f"{nowhere()}?{option}"
    with task_elsewhere(shared_once, records, once_when_down="run") as task, pytest.raises(InvalidInput) as caught:
        task.delay("down-mistyped")
    assert str(caught.value) == f"{masked(records)!r} is not a Redis URL: {reason}"


def test_a_refused_password_is_no_server_that_is_down(
    shared_once: OnceSide, start_valkey: Callable[..., ValkeyServer]
) -> None:
    records = start_valkey(config={"requirepass": "open"}).url.replace("unix://", "unix://u:s3cret@")
    with task_elsewhere(shared_once, records, once_when_down="run") as task, pytest.raises(StoreRefused) as caught:
        task.delay("down-refused")
    where = records.replace("s3cret", "***")
    assert str(caught.value) == (
        f"the records at {where} cannot be used: {where} refused the password or account of the URL"
    )


def test_a_worker_whose_password_is_refused_keeps_the_message_and_logs_why(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer]
) -> None:
    server = start_valkey(config={"requirepass": "open"})
    records = server.url.replace("unix://", "unix://:s3cret@")
    worker = once.start(replace(once.setup, records=records, conf={"once_when_down": "run"}))
    handle = once.app.send_task("kept", ("down-refused", 1))
    once.wait_for(lambda: worker.said().count(" received\n") >= 2)  # it has come back once
    assert once.runs("down-refused") == 0
    assert f" s: the records at {records.replace('s3cret', '***')} cannot be used" in worker.said()
    assert "s3cret" not in worker.said()
    with redis.Redis.from_url(server.url, password="open") as client:
        client.config_set("requirepass", "s3cret")
    assert handle.get(timeout=SOON) == ["down-refused", 1]
    assert once.runs("down-refused") == 1


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "first contact"])
def test_a_publisher_asks_a_server_that_hangs_no_longer_than_it_says(
    shared_once: OnceSide,
    start_valkey: Callable[..., ValkeyServer],
    is_known: bool,  # noqa: FBT001  # a parameter
) -> None:
    server = start_valkey()
    with task_elsewhere(shared_once, server.url, once_timeout=2) as task:
        if is_known:
            assert task.delay("down-hangs-before", 0).id
        os.kill(server.pid, signal.SIGSTOP)
        began_at = time.monotonic()
        try:
            for _ in range(4):
                with pytest.raises(StoreUnavailable):
                    task.delay("down-hangs")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert time.monotonic() - began_at < HANGS
        assert task.delay("down-hangs-after", 0).id


def test_a_worker_gives_up_a_hanging_server_in_seconds_and_the_message_comes_back(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer]
) -> None:
    server = start_valkey()
    worker = once.start(replace(once.setup, records=server.url))
    assert once.app.send_task("kept", ("hangs-before", 0)).get(timeout=SOON) == ["hangs-before", 0]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        handle = once.app.send_task("kept", ("hangs", 1))
        once.wait_for(lambda: worker.said().count(" received\n") >= 4)  # it has come back twice
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert handle.get(timeout=SOON) == ["hangs", 1]
    assert once.runs("hangs") == 1


def test_a_worker_that_is_to_run_anyway_runs_without_a_record(once: OnceSide) -> None:
    once.start(replace(once.setup, records=nowhere(), conf={"once_when_down": "run"}))
    handles = [once.app.send_task("kept", ("down-anyway", 1)) for _ in range(2)]
    assert [handle.get(timeout=SOON) for handle in handles] == [["down-anyway", 1]] * 2
    assert once.runs("down-anyway") == 2
    with pytest.raises(StoreUnavailable):
        once.app.send_task("points", ("down-effect", 5)).get(timeout=SOON)  # there is no store to do it in


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


class Trouble:
    """Makes a server answer with one error, and makes it well again."""

    def __init__(self, server: ValkeyServer, error: str) -> None:
        self._url = server.url
        self._error = error
        self._busy: threading.Thread | None = None

    def begin(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            match self._error:
                case "OOM":
                    client.config_set("maxmemory", "1")
                case "NOREPLICAS":
                    client.config_set("min-replicas-to-write", "1")
                case "BUSY":
                    client.config_set("busy-reply-threshold", "10")
                    self._busy = threading.Thread(target=self._work)
                    self._busy.start()
                    wait_until(lambda: _is_busy(client))

    def _work(self) -> None:
        with redis.Redis.from_url(self._url) as client, suppress(redis.ResponseError):
            client.eval("while true do end", 0)

    def end(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            if self._busy is not None:
                client.script_kill()
                self._busy.join()
                return
            client.config_set("maxmemory", "0")
            client.config_set("min-replicas-to-write", "0")


@pytest.mark.parametrize("error", ["OOM", "BUSY"])
def test_queued_work_outlives_a_server_of_records_that_answers_with_an_error(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer], error: str
) -> None:
    server = start_valkey()
    worker = once.start(replace(once.setup, records=server.url))
    refuses, runs = (task_elsewhere(once, server.url, once_when_down=what) for what in ("refuse", "run"))
    with refuses as refusing, runs as running:
        assert refusing.delay("before", 0).get(timeout=SOON) == ["before", 0]  # it has connected
        trouble = Trouble(server, error)
        trouble.begin()
        try:
            handles = [once.app.send_task("kept", (f"down-{number}", number)) for number in range(5)]
            once.wait_for(lambda: worker.said().count(" received\n") >= 11)  # each has come back once
            with pytest.raises(StoreError):
                refusing.delay("refused")
            sent = running.delay("sent", 1)
            assert [once.runs(f"down-{number}") for number in range(5)] == [0] * 5
        finally:
            trouble.end()
        assert [handle.get(timeout=SOON) for handle in handles] == [[f"down-{number}", number] for number in range(5)]
        assert sent.get(timeout=SOON) == ["sent", 1]
    assert [once.runs(f"down-{number}") for number in range(5)] == [1] * 5
    assert (once.runs("refused"), once.runs("sent")) == (0, 1)


@pytest.mark.parametrize("name", ["kept", "points"])
@pytest.mark.parametrize("error", ["OOM", "NOREPLICAS"])
def test_work_that_ends_while_its_records_refuse_it_is_done_once_and_kept(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer], error: str, name: str
) -> None:
    server, key, result = start_valkey(), f"end-{error}", {"kept": [f"end-{error}", 5], "points": 5}[name]
    once.start(replace(once.setup, records=server.url, down_seconds=0.5))
    with task_elsewhere(once, server.url) as app_task:
        task = app_task.app.tasks[name]
        handle = task.apply_async((key, 5, -1), link_error=once.task("compensate").si(key))
        once.wait_for(lambda: once.runs(key))
        trouble = Trouble(server, error)
        trouble.begin()
        once.enough()
        if name == "kept":
            assert handle.get(timeout=SOON) == result
        else:  # nothing is done before the server does it
            once.wait_for(lambda: once.ends_of(handle.id))
        trouble.end()
        assert handle.get(timeout=SOON) == result
        once.wait_for(lambda: "\ndone: " in task.once.explain(key, 5, -1))
        repeat = task.delay(key, 5, -1)
        assert (repeat.is_repeat, repeat.get(timeout=SOON)) == (True, result)
    assert once.lines(task="compensate", key=key) == []
    assert once.lines(task="kept", key=key) == ["5"] * (name == "kept")
    with redis.Redis.from_url(server.url) as client:
        assert client.get(f"points:{key}") == (b"5" if name == "points" else None)


def test_work_whose_worker_died_before_it_was_recorded_is_not_done_again(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer]
) -> None:
    server, key = start_valkey(), "end-killed"
    worker = once.start(replace(once.changed(fail="before_ack"), records=server.url))
    with task_elsewhere(once, server.url) as task:
        handle = task.delay(key, 5, -1)
        once.wait_for(lambda: once.runs(key))
        trouble = Trouble(server, "NOREPLICAS")
        trouble.begin()
        once.enough()
        worker.died()
        trouble.end()
        once.start(replace(once.setup, records=server.url))
        repeat = once.app.send_task("kept", (key, 5, -1))
        copy = once.app.send_task("kept", (key, 5, -1), task_id=handle.id)
        assert [one.get(timeout=SOON) for one in (repeat, copy)] == [[key, 5]] * 2
        once.wait_for(lambda: once.ends_of(copy.id))
    assert once.runs(key) == 1


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_stores()
