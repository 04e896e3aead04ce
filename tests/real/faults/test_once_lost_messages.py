"""Messages that the broker lost, or whose time is over, while other calls wait for them."""

import json
from base64 import b64decode
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest
from celery import Celery, chord
from celery.exceptions import TaskRevokedError

from tests.support.workers.once_workers import OnceSide

SOON = 60


def test_a_lost_message_is_sent_again_as_it_was_and_not_as_its_repeat(once: OnceSide) -> None:
    task = once.task("lost")
    eta = once.app.now().replace(microsecond=0)
    given = {"queue": "first", "eta": eta, "expires": 600, "headers": {"trace": "1"}}
    first = task.apply_async(("as-it-was", 1), link=once.task("compensate").si("as-it-was"), **given)
    before = _taken(once)
    once.wait_for(lambda: task.apply_async(("as-it-was", 2), queue="second") == first and once.broker.llen("first"))
    again = _taken(once)
    assert once.broker.llen("second") == 0
    assert b64decode(again["body"]) == b64decode(before["body"])
    for name in ("id", "task", "eta", "trace", "segmented_once"):
        assert again["headers"][name] == before["headers"][name]
    assert abs(_seconds(once, again) - _seconds(once, before)) < 1


def _taken(once: OnceSide) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(str(once.broker.lpop("first")))
    return message


def _seconds(once: OnceSide, message: dict[str, Any]) -> float:
    return (datetime.fromisoformat(message["headers"]["expires"]) - once.app.now()).total_seconds()


@pytest.mark.parametrize("who", ["chord", "foreign"])
def test_a_message_that_was_lost_is_run_for_repeats_that_reach_a_worker(once: OnceSide, who: str) -> None:
    task = once.task("lost")
    first = task.delay("taken-over", 1)
    once.broker.delete("celery")
    with closing(
        Celery("foreign", broker=once.setup.broker, backend=once.setup.backend, set_as_current=False)
    ) as foreign:
        if who == "chord":
            handle = chord([task.s("taken-over", 1)] * 2, once.task("gathered").s())()
        else:
            handle = foreign.send_task("lost", ("taken-over", 1))
        once.start()
        assert handle.get(timeout=SOON) == ([["taken-over", 1]] * 2 if who == "chord" else ["taken-over", 1])
        assert first.get(timeout=SOON) == ["taken-over", 1]
    assert once.runs("taken-over") == 1


@pytest.mark.parametrize("name", ["retried", "latest"])
def test_a_call_without_an_expiry_is_not_revoked_with_one_that_has_it(once: OnceSide, name: str) -> None:
    task, key = once.task(name), f"outlived-{name}"
    ends = once.app.now().timestamp() + 1
    first = task.apply_async((key,), expires=1)
    repeat = task.delay(key)
    alone = task.apply_async((f"{key}-alone",), expires=1)
    assert repeat == first
    once.wait_for(lambda: once.app.now().timestamp() > ends)
    once.start()
    assert repeat.get(timeout=SOON) == (1 if name == "retried" else [key, 0])
    with pytest.raises(TaskRevokedError):
        alone.get(timeout=SOON)
    assert once.runs(f"{key}-alone") == 0


def test_a_worker_says_at_its_start_which_rules_make_other_keys_than_before(once: OnceSide) -> None:
    workers = [once.start_ready(once.changed(key_of_plain=key)) for key in ("{key}", "{key}", "{key}-{value}")]
    told = [line for worker in workers for line in worker.said().splitlines() if "its keys were" in line]
    sentence = (
        "task plain: its keys were made of '{key}', payload True, and are now made of '{key}-{value}', payload True: "
        "calls do not meet messages and results with a key of the other kind"
    )
    assert [line.partition("] ")[2] for line in told] == [sentence]
