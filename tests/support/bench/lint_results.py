"""A results file that keeps every rule, in a folder of its own, and ways to break one of them."""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from bench.engine.cell import Cell
from bench.engine.record import ResultFile
from bench.lint.baselines import RIVALS
from tests.support.bench.records import end_line, lanes_of, run, session_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bench.engine.record import Run

ROUNDS: Final = 10
HISTORY: Final = b"every call"
PLAN: Final = b'stop = "when all rounds are done"\n'
WARM_UP: Final = 0.3
ENVIRONMENT: Final[dict[str, Any]] = {
    "code": {"commit": "c0ffee", "python": "3.11.7", "versions": {"numpy": "2"}},
    "machine": {"kernel": "6", "cpu_model": "a processor", "cores": 2, "governor": "not told", "steal_percent": 0.0},
    "disk": {"file_system": "ext4", "fdatasync_us": {"n": 50}},
    "servers": {"redis": {"version": "9.1.0", "config": {"appendonly": "no"}}},
    "placement": "server on core 0, generator on core 1",
}
BASE: Final = Cell(strategy="segment-locks", segments=16, buyers=64, section="sleep", hold_ms=20)
ONE_LOCK: Final = BASE.model_copy(update={"strategy": "global-lock", "segments": 1})
SCRIPT: Final = ONE_LOCK.model_copy(update={"strategy": "lock-free"})


def changed(cell: Cell, **values: Any) -> Cell:  # noqa: ANN401  # any field of a cell
    """Return another cell."""
    return Cell.model_validate(cell.model_dump() | values)


PERVERSE: Final = (
    {"stock": 1, "case": "one-unit"},
    {"stock": 7},
    {"buyers": 1},
    {"stock": 160, "quantity": 20},
    {"case": "cancel-storm"},
    {"case": "restock"},
)
NAMES: Final = sorted({"lock-free", *(min(names) for sets in RIVALS.values() for names in sets)})
GRID: Final[tuple[tuple[str, tuple[Cell, ...], Iterable[dict[str, Any]]], ...]] = (
    ("segments", (BASE,), [{"segments": one} for one in (1, 8, 16, 64, 128)]),
    ("buyers", (BASE, ONE_LOCK), [{"buyers": one} for one in (8, 16, 128)]),
    ("rivals", (ONE_LOCK,), [{"strategy": one} for one in NAMES]),
    (
        "holds",
        (BASE, ONE_LOCK),
        [{"section": "none", "hold_ms": 0}, {"hold_ms": 5}, {"section": "commit", "hold_ms": 0}],
    ),
    ("round-trips", (BASE, ONE_LOCK, SCRIPT), [{"rtt_ms": one} for one in (0.5, 2, 10)]),
    ("load", (BASE, SCRIPT), [{"loop": "open", "offered_per_s": one, "buyers": 1_000} for one in (35.0, 900.0)]),
    ("perverse", (BASE, ONE_LOCK), PERVERSE),
)


def planned() -> Iterator[tuple[str, Cell]]:
    """Yield sweeps and cells: as few as keep every rule."""
    for sweep, cells, axis in GRID:
        for cell, values in product(cells, axis):
            yield sweep, changed(cell, **values)


@cache
def honest() -> ResultFile:
    """Return the file that keeps all of them."""
    cells: dict[Cell, list[str]] = {}
    for sweep, cell in planned():
        cells.setdefault(cell, []).append(sweep)
    runs: list[Run] = []
    for number in range(1, ROUNDS + 1):
        turns = [(cell, arm) for cell in cells for arm in ("A", "B") if arm == "A" or cell == BASE]
        for cell, arm in turns[number:] + turns[:number]:
            runs.append(_run(cell, len(runs) + 1, number, arm, tuple(cells[cell])))
    plan = {
        "hypotheses": [{"id": "H1"}],
        "exclusions": ["a broken promise"],
        "stop": "when all rounds are done",
        "warm_up": WARM_UP,
        "sweeps": [{"name": name} for name in dict.fromkeys(sweep for sweep, _ in planned())],
    }
    session = session_line(plan=plan, plan_sha256=hashlib.sha256(PLAN).hexdigest(), environment=ENVIRONMENT)
    return ResultFile(session=session, runs=tuple(runs), end=end_line(len(runs)))


@cache
def _template(cell: Cell) -> Run:
    rate = cell.offered_per_s if cell.offered_per_s is not None else None
    lanes = max(2, lanes_of(cell)) if cell.segments > 1 else lanes_of(cell)
    return run(cell, orders_per_s=rate, n=1_000, wait_cv=0.0, lanes=lanes)


def _run(cell: Cell, number: int, one: int, arm: str, sweeps: tuple[str, ...]) -> Run:
    values = {
        "run": number,
        "round": one,
        "arm": arm,
        "sweeps": sweeps,
        "seed": number,
        "history": f"histories/{number:04}.jsonl.zst",
        "history_sha256": hashlib.sha256(HISTORY).hexdigest(),
    }
    return _template(cell).model_copy(update=values)


def lay_out(folder: Path) -> None:
    """Put beside the results what belongs there."""
    (folder / "plan.toml").write_bytes(PLAN)
    (folder / "histories").mkdir()
    for one in honest().runs:
        (folder / str(one.history)).write_bytes(HISTORY)


def with_run(place: int, **values: Any) -> ResultFile:  # noqa: ANN401  # any field of a run
    """Return the file with one run changed."""
    runs = list(honest().runs)
    runs[place] = runs[place].model_copy(update=values)
    return honest().model_copy(update={"runs": tuple(runs)})


def without(*unwanted: Cell) -> ResultFile:
    """Return the file without the runs of these cells."""
    runs = tuple(one for one in honest().runs if one.cell not in unwanted)
    return honest().model_copy(update={"runs": runs, "end": end_line(len(runs))})


def place_of(cell: Cell) -> int:
    """Return where the first run of a cell stands."""
    return next(place for place, one in enumerate(honest().runs) if one.cell == cell)
