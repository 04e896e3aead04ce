"""The page for an operator at night: each of its commands runs, and changes nothing."""

import re

import pytest

from segmented import Pool, RedisStore
from segmented.servers import ValkeyServer
from tests.support.command_line import ran
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "three-in-the-morning.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| `segmented ([^`]+)` \|", PAGE, flags=re.MULTILINE)
SYMPTOMS = (
    *("nothing sells", "sold out too early", "the outbox grows", "a segment is stuck", "Redis came back empty"),
    *("the database is full", "workers are up and do nothing"),
)


def test_the_page_has_every_symptom() -> None:
    assert [symptom for symptom, _ in ROWS][: len(SYMPTOMS)] == list(SYMPTOMS)


@pytest.mark.parametrize(("symptom", "command"), ROWS, ids=[symptom for symptom, _ in ROWS])
def test_the_command_of_a_symptom_runs_and_changes_nothing(valkey: ValkeyServer, symptom: str, command: str) -> None:
    assert symptom
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "poster")
        pool.open(stock=10, segments=2)
        pool.reserve("a")
        before = pool.state()
        done = ran(*command.replace("SKU", "poster").split(), url=valkey.url)
        assert (done.returncode, "segmented: error" in done.stderr) == (0, False), done.stderr
        assert pool.state() == before
