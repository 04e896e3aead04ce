"""Seeds that are new in every run: the failing one is named, kept, and its schedule made as small as can be."""

import inspect
from collections import Counter
from pathlib import Path

import pytest

from segmented.plans import Plan, perform
from tests.support.sim import seeds
from tests.support.sim.seeds import VARIABLE, each_seed, name_of
from tests.support.sim.shrinking import smallest
from tests.support.sim.simulator import Simulation, Sleep


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of these tests is kept."""
    monkeypatch.setattr(seeds, "KEPT", tmp_path / "kept_seeds.txt")
    monkeypatch.setenv(VARIABLE, "1000")
    return tmp_path / "kept_seeds.txt"


def test_a_test_is_run_for_each_seed_and_the_failing_one_is_named_and_kept(kept: Path) -> None:
    seen: list[tuple[int, str]] = []

    @each_seed(10)
    def simulated(seed: int, kind: str) -> None:
        seen.append((seed, kind))
        assert seed != 1007

    assert list(inspect.signature(simulated).parameters) == ["kind"]
    with pytest.raises(AssertionError) as caught:
        simulated(kind="lock")
    assert seen[:8] == [(1000 + offset, "lock") for offset in range(8)]
    note = caught.value.__notes__[0].splitlines()
    assert note[0] == "seed 1007, kept in tests/kept_seeds.txt; its replay:"
    assert note[1].startswith("TEST_SEED=1007 .venv/bin/python -m pytest 'tests/quick/unit/test_seeds.py::test_a_")
    assert kept.read_text() == "tests.quick.unit.test_seeds::simulated 1007\n"


# --- the smallest schedule ---


def worker(log: list[str], name: str) -> Plan[None]:
    for _ in range(5):
        log.append(name)
        yield from perform(Sleep(0.0))


def test_a_failure_is_shrunk_to_the_actors_and_turns_it_takes() -> None:
    """Of ten actors it takes two, and that the second goes on after the first has begun and before it ends."""

    def run() -> None:
        log: list[str] = []
        world = Simulation(3)
        for index in range(10):
            world.start(f"w{index}", worker(log, f"w{index}"))
        world.run()
        places = [place for place, name in enumerate(log) if name == "w4"]
        assert not any(log[place] == "w7" for place in range(places[0], places[-1])) if places else True

    with pytest.raises(AssertionError) as caught:
        run()
    lines = smallest(run, caught.value)
    assert lines[0].startswith("the smallest schedule found has 2 of 10 actors, 0 of 0 kills, 0 of 0 losses, ")
    turns = int(lines[0].split("losses, ")[1].split(" ")[0])
    assert 1 <= turns <= 2
    assert {line.split(" ")[1] for line in lines[1:]} == {"w4:", "w7:"}


def test_a_failure_is_shrunk_to_the_faults_it_takes() -> None:
    def run() -> None:
        log: list[str] = []
        world = Simulation(4, kills=0.1)
        for index in range(10):
            world.start(f"w{index}", worker(log, f"w{index}"))
        world.run()
        assert log.count("w2") in {0, 5}

    with pytest.raises(AssertionError) as caught:
        run()
    (line, *steps) = smallest(run, caught.value)
    assert line.startswith("the smallest schedule found has 1 of 10 actors, 1 of ")
    assert [step.split(" ", 1)[1] for step in steps if "killed" in step] == ["w2: killed"]


def test_worlds_in_which_nothing_happens_of_what_a_test_is_about_fail_it() -> None:
    seen: list[int] = []

    @each_seed(2, meets=["turns", "kills"])
    def simulated(seed: int) -> None:
        seen.append(seed)
        world = Simulation(seed)
        for index in range(3):
            world.start(f"w{index}", worker([], f"w{index}"))
        world.run()

    with pytest.raises(AssertionError, match="simulated shows nothing: no kills in 200 runs"):
        simulated()
    assert len(seen) == 200


def test_a_seed_that_was_kept_is_replayed_first(kept: Path) -> None:
    seen: list[int] = []

    @each_seed(2)
    def simulated(seed: int) -> None:
        seen.append(seed)

    kept.write_text(f"{name_of(simulated)} 77\nother::test 5\n{name_of(simulated)} 8\n")
    simulated()
    assert seen == [77, 8, 1000, 1001]


def test_further_seeds_are_run_until_all_has_happened_that_a_test_is_about() -> None:
    seen: list[int] = []

    @each_seed(2, meets=["rare"])
    def simulated(seed: int) -> Counter[str]:
        seen.append(seed)
        return Counter(rare=int(seed == 1040))

    simulated()
    assert seen == [*range(1000, 1041)]
