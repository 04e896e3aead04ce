"""What every ring shares. A file in tests/fixtures/ joins by being there: private servers and stores live in it."""

import gc
import logging
import os
import pkgutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from segmented.testing import plugin
from tests import fixtures
from tests.support.file_order import side_by_side
from tests.support.flavour import Flavour
from tests.support.paths import ROOT, TESTS, quick_folder
from tests.support.rings import COMMANDS, IN_TURN, RINGS, outermost, ring_of, ring_of_side, side_of_turn
from tests.support.sim.seeds import VARIABLE, seed_of_run
from tests.support.warm import start_warm

pytest_plugins = [
    *(f"tests.fixtures.{module.name}" for module in pkgutil.iter_modules(fixtures.__path__)),
]

# Tests start hundreds of processes, and one that may keep no bytecode compiles again what the one before it compiled: a
# fifth of what a Celery worker takes to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A database that writes through to a disk waits for it at every commit, and a test that makes one waits for its files:
# half of what the tests of the order database took. What a server does is the same in memory, fsync on and all.
if quick_folder() is not None:
    os.environ.setdefault("TMPDIR", str(quick_folder()))
    tempfile.tempdir = None  # pytest has asked already

# A running `segmented server` of this account is announced there; tests announce their own below TMPDIR.
os.environ.pop("XDG_RUNTIME_DIR", None)

# No deadline, and no check of speed: a shared machine is slow at times. The examples are new in every run; one that
# fails is printed with what replays it, and kept in .hypothesis, from where every later run here takes it first.
settings.register_profile(
    "new", deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("new")

# Python programs of tests fork from one that has imported what they use.
start_warm()

# A job that a shell started in the background ignores Ctrl-C, and so would every process that a test starts; a handler
# here is the default again in whatever is run from here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of this run, which gives it its seeds; the workers of several have it from here.

    The library's own plugin is there, also where the package was installed before it had that entry point.
    """
    seed_of_run()
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin, "segmented")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number, with which the run can be replayed, and the rings that the run left out."""
    terminalreporter.write_line(f"seeds of this run: {VARIABLE}={seed_of_run()}")
    if config.option.markexpr in RINGS:
        others = ", ".join(f"{ring} (`{COMMANDS[ring]}`)" for ring in RINGS if ring != config.option.markexpr)
        terminalreporter.write_line(f"left out: {others}")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without collecting garbage, of which there is none, and set all the tests aside when they are there.

    They are half a million objects, and a full collection in the midst of a test would look at each of them.
    """
    gc.disable()
    try:
        import_from_own_place(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def import_from_own_place(config: pytest.Config) -> None:
    """Import the test files, each worker of several from another one on.

    All workers begin at once, and from one place on, each would compile every file of a new clone: half of its start.
    """
    if (worker := getattr(config, "workerinput", None)) is None:
        return
    files = sorted(file for folder in config.args for file in Path(folder).resolve().rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):  # its collection says what is wrong
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each test one side of Redis, mark it with its ring and time limit, and run the inner rings first.

    Several workers run them side by side: see tests/support/file_order.py.
    """
    items[:] = with_sides_in_turn(items)
    for item in items:
        ring = ring_of_test(item)
        if item.get_closest_marker(ring) is None:
            item.add_marker(getattr(pytest.mark, ring))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(RINGS[ring]))
    if hasattr(config, "workerinput"):  # one worker of several
        files = {file: place for place, file in enumerate(side_by_side(file_of(item.path) for item in items))}
        items.sort(key=lambda item: files[file_of(item.path)])
    else:
        order = list(RINGS)
        items.sort(key=lambda item: order.index(ring_of(item.path)))


def with_sides_in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without those sides of Redis whose turn it is not."""
    sides: defaultdict[tuple[str, str, str], list[Flavour]] = defaultdict(list)
    for item in items:
        for test, side in sides_of(item):
            if side not in sides[test]:
                sides[test].append(side)
    due = {test: side_of_turn(test[1], found) for test, found in sides.items()}
    return [item for item in items if all(due[test] == side for test, side in sides_of(item))]


def sides_of(item: pytest.Item) -> Iterator[tuple[tuple[str, str, str], Flavour]]:
    """Yield the file, test and fixture of a side of Redis, and that side."""
    given = getattr(item, "callspec", None)
    for fixture, value in given.params.items() if given is not None else ():
        if fixture in IN_TURN and isinstance(value, Flavour) and ring_of_test(item) != "quick":
            yield (str(item.path), getattr(item, "originalname", ""), fixture), value


def ring_of_test(item: pytest.Item) -> str:
    """Return the outermost ring that the folder, a marker or the side of a test names."""
    rings = {ring_of(item.path), *(ring for ring in RINGS if item.get_closest_marker(ring) is not None)}
    given = getattr(item, "callspec", None)
    for fixture, value in given.params.items() if given is not None else ():
        if isinstance(value, Flavour):
            rings.add(ring_of_side(value, has_memory=fixture in {"side", "waiting_side"}))
    return outermost(rings)


@cache
def file_of(path: Path) -> str:
    """Return a test file's path below tests/."""
    return path.relative_to(TESTS).as_posix()


@pytest.fixture(autouse=True)
def warnings_are_logged() -> None:
    """Let warnings be logged: an app of Celery that a test made raises the level for the whole process."""
    logging.getLogger().setLevel(logging.WARNING)
