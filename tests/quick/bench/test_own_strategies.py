"""A strategy of one's own is a class in a file; what is wrong with it is said in a sentence before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from bench.engine.grid import grid_of
from bench.engine.plan import own_plan
from bench.strategies import STRATEGIES
from bench.strategies.own import OWN, add_strategy, find_own
from segmented.cli.main import run
from segmented.errors import InvalidInput
from tests.support.command_line import ran

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD: Final = """
from bench.strategies.counted import CountedStrategy
class Mine(CountedStrategy):
    name = "mine"
    summary = "one counter"
    has_segments = True
    def buy(self, order):
        return self.refusal(order)
"""


@pytest.fixture(autouse=True)
def _strategies_as_before() -> Iterator[None]:
    known = set(STRATEGIES)
    yield
    for name in set(STRATEGIES) - known:
        del STRATEGIES[name]
    OWN.clear()


def saved(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_class_of_a_file_is_a_strategy_and_may_be_added_again(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD)
    assert [add_strategy(f"{file}:Mine") for _ in range(2)] == ["mine", "mine"]
    assert STRATEGIES["mine"].summary == "one counter"
    assert OWN["mine"] == find_own(f"{file}:Mine")


def test_it_is_compared_with_one_lock_segment_locks_and_no_lock(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD)
    other = saved(tmp_path, GOOD.replace('"mine"', '"plain"').replace("True", "False"), "plain.py")
    loaded = own_plan([add_strategy(f"{file}:Mine"), add_strategy(f"{other}:Mine")])
    assert [one.key for one in grid_of(loaded, is_quick=True).cells] == [
        "mine K=16 N=64 B=1 20ms",
        "plain K=1 N=64 B=1 20ms",
        "global-lock K=1 N=64 B=1 20ms",
        "segment-locks K=16 N=64 B=1 20ms",
        "lock-free K=16 N=64 B=1 20ms",
    ]
    assert len(grid_of(loaded).cells) == 15


@pytest.mark.parametrize("ends", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_file_that_ends_its_process_is_refused_and_ours_goes_on(tmp_path: Path, ends: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import os\n{ends}\n{GOOD}", encoding="utf-8")
    done = ran("bench", "granularity", "--strategy", f"{file}:Mine", url=None)
    sentence = f"segmented: --strategy {file}:Mine: importing the file ends the process, as os._exit does"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, sentence)


MISTAKES: Final = [
    (GOOD, "Theirs", "the file has no class 'Theirs'; it has: Mine"),
    ("Mine = 1", "Mine", "the file has no class 'Mine'; it has: none"),
    ("import no_such_one", "Mine", "the file cannot be imported: ModuleNotFoundError: No module named 'no_such_one'"),
    ("raise SystemExit(3)", "Mine", "the file cannot be imported: SystemExit: 3"),
    ("class Mine: pass", "Mine", "Mine must be derived from bench.strategies.base.Strategy"),
    (GOOD.replace("def buy", "def sell"), "Mine", "Mine lacks buy"),
    (GOOD.replace("    name", "    title").replace("    summary", "    said"), "Mine", "Mine lacks name, summary"),
    (
        GOOD.replace('"mine"', '"My own"'),
        "Mine",
        "Mine.name must be 1 to 40 small letters, digits and hyphens, not 'My own'",
    ),
    (GOOD.replace('"mine"', "5"), "Mine", "Mine.name must be 1 to 40 small letters, digits and hyphens, not 5"),
    (
        GOOD.replace('"mine"', '"one-script"'),
        "Mine",
        "the name 'one-script' is taken by a strategy of the bench; give it another name",
    ),
    (
        GOOD.replace('"one counter"', '"one counter"\n    guarantees = "none"'),
        "Mine",
        "Mine.guarantees must be a bench.strategies.base.Guarantees",
    ),
]


@pytest.mark.parametrize(("text", "class_name", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_two_and_adds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, class_name: str, sentence: str
) -> None:
    spec, known = f"{saved(tmp_path, text)}:{class_name}", dict(STRATEGIES)
    assert run(["bench", "--quick", "--strategy", spec, "--report", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err == f"segmented: --strategy {spec}: {sentence}\n"
    assert known == STRATEGIES
    assert not OWN
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("mine.py", "not FILE:Class, such as stripes.py:Stripes"),
        (":Mine", "not FILE:Class, such as stripes.py:Stripes"),
        ("mine.py:1", "not FILE:Class, such as stripes.py:Stripes"),
        ("/no/such/mine.py:Mine", "/no/such/mine.py cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_not_named_or_not_there_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        add_strategy(spec)
    assert str(refused.value) == f"--strategy {spec}: {sentence}"


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD, "mine.txt")
    with pytest.raises(InvalidInput, match=r"is not a Python file; its name must end with \.py$"):
        add_strategy(f"{file}:Mine")


def test_two_of_the_same_name_are_refused(tmp_path: Path) -> None:
    first, second = saved(tmp_path, GOOD), saved(tmp_path, GOOD, "other.py")
    add_strategy(f"{first}:Mine")
    with pytest.raises(InvalidInput, match=f"the name 'mine' is taken by a strategy of {first}:Mine; give it another"):
        add_strategy(f"{second}:Mine")


def test_a_file_that_changed_since_is_not_sold_with(tmp_path: Path) -> None:
    file = saved(tmp_path, GOOD)
    found = find_own(f"{file}:Mine")
    found.add()
    saved(tmp_path, GOOD + "# other")
    with pytest.raises(InvalidInput, match="has changed while its strategy was measured; measure again, into another"):
        found.add()
