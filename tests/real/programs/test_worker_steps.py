"""The step that SEGMENTED_STEP names: what is no step is refused in one sentence, before a worker takes an order."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from segmented.celery import tasks
from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer
from tests.support.paths import ROOT
from tests.support.workers.worker_processes import clean_environment


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    tasks.step.cache_clear()
    yield
    tasks.step.cache_clear()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pack = {}['NO_SUCH_KEY']", r"its module cannot be loaded: KeyError\('NO_SUCH_KEY'\)"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("", "has no attribute 'pack'"),
        ("pack = 3", "it must name a function"),
        ("async def pack(begun): ...", "is a coroutine function, and calling it would run nothing"),
        ("def pack(begun): yield", "is a generator function, and calling it would run nothing"),
    ],
)
def test_what_is_no_step_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest, text: str, wrong: str
) -> None:
    name = f"shop_steps_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tasks, "settings", lambda: WorkerSettings(step=f"{name}:pack"))
    with pytest.raises(InvalidInput, match=wrong):
        tasks.step()


def test_a_program_that_submits_an_order_and_ends_at_once_has_its_message_sent(
    tmp_path: Path, valkey: ValkeyServer, sqlite_url: str
) -> None:
    program = (
        "from segmented import Outbox, Pool, RedisStore\nfrom segmented.celery import publisher\n"
        f"pool = Pool(RedisStore.from_url({valkey.url!r}), 'mug', outbox=Outbox(publisher()))\n"
        "pool.open(stock=1, segments=1)\npool.submit('a')\n"
    )
    told = {"SEGMENTED_URL": valkey.url, "SEGMENTED_DATABASE": sqlite_url, "SEGMENTED_BROKER_ON_STOCK_SERVER": "1"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=clean_environment(tmp_path, told), check=True)
    with redis.Redis.from_url(valkey.url.replace("db=0", "db=1")) as broker:
        assert broker.llen("segmented") == 1


def test_a_publisher_loads_its_transport_before_a_thread_needs_it(tmp_path: Path) -> None:
    program = (
        "import sys, segmented.celery.messages as us; us.publisher(); print('kombu.transport.redis' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=clean_environment(tmp_path, {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
