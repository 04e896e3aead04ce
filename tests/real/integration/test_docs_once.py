"""What the pages about deduplicated tasks show runs as it is shown, and what they state is so."""

import re
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from celery import Celery

from segmented import MemoryStore
from segmented.dedup import FailedBefore
from segmented.dedup.celery import Once, OnceRule, latest, per, serial, unique
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.quick.tidy.test_docs import PYTHON
from tests.support.paths import ROOT

HOW_TO: Final = ROOT / "docs" / "how-to" / "run-a-task-once.md"
MIGRATE: Final = ROOT / "docs" / "how-to" / "migrate-from-celery-once-and-celery-singleton.md"
PROMISE: Final = ROOT / "docs" / "explanation" / "what-once-cannot-promise.md"
REFERENCE: Final = ROOT / "docs" / "reference" / "once.md"
SERVERS: Final = 'broker="redis://localhost:6379/0", backend="redis://localhost:6379/1"'
IN_MEMORY: Final = (
    'broker="memory://", backend="cache+memory://", '
    'changes={"task_always_eager": True, "worker_hijack_root_logger": False}'
)
WAIT_SECONDS: Final = 60.0
MODULE: Final = "shown_on_a_page"


class App(Celery):
    """An app whose tasks are its own: Celery gives those of one app to every other one of the process."""

    def task(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
        """Make a task."""
        return super().task(*arguments, **{**options, "shared": False})


def blocks(page: Path) -> list[str]:
    """Return the Python of a page, but for what shows another library."""
    return [block for block in PYTHON.findall(page.read_text(encoding="utf-8")) if "import celery_" not in block]


def shown(block: str, url: str) -> str:
    """Return a block with its servers exchanged: tasks run where they are published, the records are at `url`."""
    assert "celery_once" not in block
    assert "celery_singleton" not in block
    block = block.replace("from celery import Celery", f"from {__name__} import App as Celery")
    patient = block.replace("perform_ping_check=False", f"perform_ping_check=False, shutdown_timeout={WAIT_SECONDS}")
    patient = patient.replace("postgresql+psycopg://postgres@localhost/shop", "sqlite://")
    return patient.replace(SERVERS, IN_MEMORY).replace("redis://localhost:6379/2", url)


def cells(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, their code marks removed."""
    _, _, below = page.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None, f"no table under {heading}"
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")] for line in lines[0].splitlines()]
    return rows[2:]


@pytest.fixture
def module() -> Iterator[dict[str, Any]]:
    """Where the blocks of a page run, one after the other."""
    made = sys.modules[MODULE] = ModuleType(MODULE)
    yield made.__dict__
    del sys.modules[MODULE]


def same(order: str) -> str:
    """Give back what it was given."""
    return order


@pytest.fixture
def app() -> App:
    """An app that keeps everything in memory."""
    made = App("shop", broker="memory://", backend="cache+memory://")
    made.conf.update(
        once_store=MemoryStore(),
        task_always_eager=True,
        worker_hijack_root_logger=False,
        broker_transport_options={"polling_interval": 0.01},
    )
    return made


@pytest.mark.parametrize("page", [HOW_TO, PROMISE], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, valkey: ValkeyServer, module: dict[str, Any]) -> None:
    found = blocks(page)
    assert found
    for number, block in enumerate(found, start=1):
        exec(compile(shown(block, valkey.url), f"{page.name}, block {number}", "exec"), module)  # noqa: S102  # our page


def test_the_new_side_of_both_migrations_runs(valkey: ValkeyServer, module: dict[str, Any]) -> None:
    after = [one for one in blocks(MIGRATE) if "celery_once" not in one and "celery_singleton" not in one]
    assert len(after) == 2
    for number, block in enumerate(after, start=1):
        exec(compile(shown(block, valkey.url), f"{MIGRATE.name}, block {number}", "exec"), module)  # noqa: S102  # our page
        assert module["rebuild"].delay("books").state == "SUCCESS"
        assert module["charge"].delay("o-7", 1).state == "SUCCESS"


def test_every_rule_that_a_page_names_in_a_table_can_be_made() -> None:
    made = {"unique": unique, "per": per, "latest": latest, "serial": serial}
    rules = [
        found
        for page in (HOW_TO, MIGRATE)
        for found in re.findall(r"`((?:unique|per|latest|serial)\([^`]*\))`", page.read_text(encoding="utf-8"))
    ]
    assert len(rules) >= 14
    for rule in rules:
        assert isinstance(eval(rule, made), OnceRule)  # noqa: S307  # our page


def test_the_reference_names_every_option_of_each_rule_and_its_default() -> None:
    stated: dict[tuple[str, str], str] = {}
    for name, of, default, _ in cells(REFERENCE, "## Rules"):
        named = set(re.findall(r"unique|per|latest|serial", of)) or {"unique", "per", "latest", "serial"}
        if of.startswith("all but"):
            named = {"unique", "per", "latest", "serial"} - named
        stated |= {(rule, name): default.replace(",", "").strip('"') for rule in named}
    known = {
        (rule.__name__, name): one.default
        for rule in (unique, per, latest, serial)
        for name, one in signature(rule).parameters.items()
    }
    assert stated.keys() == known.keys()
    for place, default in known.items():
        shown_as = f"{default:g}" if isinstance(default, float) else str(default)
        assert stated[place] == shown_as or place in {("per", "period"), ("per", "clock")}, place


def test_a_failure_is_kept_only_where_it_is_said(app: App) -> None:
    runs = []

    def failing(order: str) -> None:
        runs.append(order)
        raise ValueError(order)

    rules = {"plain": unique("{order}"), "kept": unique("{order}", keep_failures=60), "day": per("day", "{order}")}
    tasks = {name: app.task(base=Once, once=rule, name=name)(failing) for name, rule in rules.items()}
    for name, error in (("plain", ValueError), ("kept", FailedBefore), ("day", ValueError)):
        runs.clear()
        tasks[name].delay("o")
        assert isinstance(tasks[name].delay("o").result, error)
        assert len(runs) == (1 if name == "kept" else 2)


def test_settings_are_found_under_the_prefix_that_django_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ModuleType(MODULE)
    settings.CELERY_ONCE_URL = "redis://records/2"  # type: ignore[attr-defined]  # as a module of settings has them
    monkeypatch.setitem(sys.modules, MODULE, settings)
    app = App("shop")
    app.config_from_object(MODULE, namespace="CELERY")
    assert app.conf.get("once_url") == "redis://records/2"


def test_what_is_left_over_of_the_old_options_is_refused_or_means_nothing(app: App) -> None:
    app.conf.task_always_eager = False
    task = app.task(base=Once, once="{order}", unique_on=["order"], lock_expiry=5, name="t")(same)
    first = task.apply_async(("o",), once={"graceful": True})
    assert task.delay("o") == first
    with pytest.raises(InvalidInput, match="give unique"):
        app.task(base=Once, once={"keys": ["order"]}, lazy=False, name="refused")(same)


def test_a_key_of_the_callers_is_that_of_one_task(valkey: ValkeyServer, app: App) -> None:
    with RedisStore.from_url(valkey.url) as store:
        app.conf.once_store = store
        rule = unique("{order}", keep=60)
        for name in ("one", "two"):
            task = app.task(base=Once, once=rule, name=name)(same)
            assert not task.apply_async(("o",), once_key="request-1").is_repeat
            assert task.apply_async(("o",), once_key="request-1").is_repeat
