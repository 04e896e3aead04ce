"""Deduplicated tasks in Celery's eager mode and as plain calls: records hold there too, and no worker is needed."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import redis

from segmented.dedup import OtherPayload
from segmented.dedup.celery import once_repeated
from segmented.dedup.celery.settings import close_stores
from segmented.models.dedup import Freed
from tests.support.workers.once_app import build
from tests.support.workers.once_steps import Setup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from segmented.servers import ValkeyServer


@pytest.fixture
def setup(valkey: ValkeyServer, tmp_path: Path) -> Setup:
    return Setup(records=valkey.url, log=str(tmp_path / "log"), conf={"task_always_eager": True})


@pytest.fixture
def tasks(setup: Setup) -> Iterator[Any]:
    with closing(build(setup)) as app:
        yield app.tasks
    close_stores()


def runs(setup: Setup) -> int:
    with open(setup.log) as log:  # noqa: PTH123  # a path in text
        return sum(line.endswith(" begin\n") for line in log)


def test_an_eager_repeat_gets_the_kept_result_and_does_not_run(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    assert tasks["kept"].delay("a", 1).get() == ["a", 1]
    assert tasks["kept"].delay("a", 1).get() == ["a", 1]
    assert runs(setup) == 1
    with pytest.raises(OtherPayload, match=r"of 'kept' keyed by '{key}' was used .*: a repeat needs the same value, "):
        tasks["kept"].delay("a", 2)


def test_a_call_runs_whatever_others_do_where_it_is_asked_for(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    kept = tasks["kept"]
    assert [kept.apply_async(("a", number), once=number == 0).get() for number in range(3)] == [
        ["a", 0],
        ["a", 1],
        ["a", 2],
    ]
    kept.app.conf.once_off = True
    assert kept.delay("a", 3).get() == ["a", 3]
    kept.app.conf.once_off = False
    assert (kept.delay("a", 0).get(), runs(setup)) == (["a", 0], 4)


def test_every_handle_says_whether_it_is_a_repeat_and_a_signal_is_sent(tasks: Any) -> None:  # noqa: ANN401  # tasks by name
    heard: list[tuple[str, str, str]] = []

    def hear(sender: str, message_id: str, decision: str, **_: object) -> None:
        heard.append((sender, message_id, decision))

    once_repeated.connect(hear, weak=False)
    first, repeat = tasks["kept"].delay("a", 1), tasks["kept"].delay("a", 1)
    once_repeated.disconnect(hear)
    assert (first.is_repeat, first.first_id, repeat.is_repeat, repeat.first_id) == (False, first.id, True, first.id)
    assert heard == [("kept", first.id, "returned")]


def test_an_eager_task_without_keep_frees_its_key(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    assert [tasks["plain"].delay("a", number).get() for number in range(2)] == [["a", 0], ["a", 1]]
    assert runs(setup) == 2


def test_a_result_without_keep_is_recorded_for_two_hours_and_no_repeat_gets_it(
    tasks: Any,  # noqa: ANN401  # tasks by name
    valkey: ValkeyServer,
) -> None:
    assert tasks["plain"].delay("a", 1).get() == ["a", 1]
    with redis.Redis.from_url(valkey.url, decode_responses=True) as server:
        (record,) = [key for key in server.scan_iter() if server.hget(key, "body") == '["a", 1]']
        left = server.pttl(record)
    assert 7_000_000 < left <= 7_200_000
    assert tasks["plain"].delay("a", 2).get() == ["a", 2]


@pytest.mark.parametrize("name", ["retried", "unsteady"])
def test_an_eager_retry_runs_under_its_own_claim(tasks: Any, setup: Setup, name: str) -> None:  # noqa: ANN401  # tasks by name
    assert tasks[name].delay("a", 2).get() == 2
    assert runs(setup) == 3
    assert tasks[name].delay("a", 0).get() == 0


def test_apply_runs_without_a_publication_and_still_once(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    assert [tasks["kept"].apply(("a", 1)).get() for _ in range(2)] == [["a", 1]] * 2
    assert runs(setup) == 1


def test_a_task_explains_and_frees_the_key_of_a_call(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    kept = tasks["kept"]
    assert kept.once.explain("a", 1).splitlines()[1:] == [
        "nobody holds it, and no outcome is kept",
        "a repeat now runs",
    ]
    first = kept.delay("a", 1)
    said = kept.once.explain("a", value=1)
    assert f"done: message {first.id} ended" in said
    assert said.splitlines()[-1] == "a repeat now gets the kept outcome and does not run"
    assert kept.once.free("a", 1) == Freed("done", first.id)
    assert (kept.delay("a", 1).is_repeat, runs(setup)) == (False, 2)
