"""A whole result file for tests: sweeps over K, N, holds, batches and offered rates, with everything that goes wrong.

The rates follow simple formulas of their own, with seeded noise of a per cent a run; nothing in it was measured.
"""

from functools import cache
from typing import Final

import numpy as np

from bench.engine.cell import Cell
from bench.engine.record import Cpu, ResultFile, Run
from tests.support.bench.records import OVERHEAD_MS, checker, end_line, lanes_of, run, session_line

ROUNDS: Final = 10
SEGMENTS: Final = (1, 2, 4, 8, 16, 32, 64)
BUYERS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
HOLDS: Final = (1.0, 5.0, 20.0)
BATCHES: Final = (1, 4, 16, 64)
OFFERED: Final = (10.0, 20.0, 30.0, 40.0, 45.0, 60.0)
"""Of one lock at 20 ms, which can do 48.8 a second."""
NOISE: Final = 0.01
GENERATOR_PER_S: Final = 2_000.0
"""Calls a second that the generator can make: what is above is saturated."""

LOCK_FREE: Final = Cell(strategy="lock-free", buyers=64, section="sleep", hold_ms=20)
ONE_SCRIPT: Final = LOCK_FREE.model_copy(update={"strategy": "one-script"})
GLOBAL: Final = Cell(strategy="global-lock", buyers=64, section="sleep", hold_ms=20)
CONTROL: Final = Cell(strategy="no-lock", buyers=64, section="sleep", hold_ms=20)
VOID: Final = Cell(strategy="segment-locks", segments=8, buyers=64, section="sleep", hold_ms=20)
"""The cell whose run of round 3 refused wrongly."""
AA: Final = Cell(strategy="segment-locks", segments=16, buyers=64, section="sleep", hold_ms=20)
"""The cell that runs twice a round."""


def sweeps() -> dict[Cell, tuple[str, ...]]:
    """Return every cell with the sweeps that it belongs to."""
    found: dict[Cell, list[str]] = {}

    def add(sweep: str, cell: Cell) -> None:
        found.setdefault(cell, []).append(sweep)

    for segments in SEGMENTS:
        add("segments", AA.model_copy(update={"segments": segments}))
        for hold in HOLDS[:-1]:
            add("holds", AA.model_copy(update={"segments": segments, "hold_ms": hold}))
    for cell in (LOCK_FREE, ONE_SCRIPT, GLOBAL, CONTROL):
        add("segments", cell)
    for hold in HOLDS[:-1]:
        for cell in (LOCK_FREE, GLOBAL):
            add("holds", cell.model_copy(update={"hold_ms": hold}))
    for buyers in BUYERS:
        add("buyers", AA.model_copy(update={"buyers": buyers}))
    for batch in BATCHES:
        add("batches", AA.model_copy(update={"strategy": "segment-batches", "batch": batch}))
    for rate in OFFERED:
        add("load", GLOBAL.model_copy(update={"loop": "open", "offered_per_s": rate, "buyers": 512}))
    return {cell: tuple(names) for cell, names in found.items()}


def calls_per_s(cell: Cell) -> float:
    """Return what a cell would do without noise and without a limit of the generator."""
    hold = (cell.hold_ms + OVERHEAD_MS) / 1_000
    return min(lanes_of(cell) / hold, cell.buyers / (hold + OVERHEAD_MS / 1_000), cell.offered_per_s or np.inf)


@cache
def whole_session(*, seed: int = 1, rounds: int = ROUNDS, factor: float = 1.0, noise: float = NOISE) -> ResultFile:
    """Return the file. `factor` multiplies every rate: another version of the code, faster or slower."""
    rng = np.random.default_rng(seed)
    runs: list[Run] = []
    cells = sweeps()
    for one in range(rounds):
        order = [(cell, arm) for cell in cells for arm in (("A", "B") if cell == AA else ("A",))]
        for place in rng.permutation(len(order)):
            cell, arm = order[place]
            found = factor * float(np.exp(noise * rng.standard_normal()))
            runs.append(_run(cell, factor=found, number=len(runs), one=one, arm=arm, sweeps=cells[cell]))
    return ResultFile(session=session_line(), runs=tuple(runs), end=end_line(len(runs)))


def _run(cell: Cell, *, factor: float, number: int, one: int, arm: str, sweeps: tuple[str, ...]) -> Run:
    calls = calls_per_s(cell) * (1.0 if cell.loop == "open" else factor)
    is_saturated = calls > GENERATOR_PER_S
    rate = round(min(calls, GENERATOR_PER_S) * cell.batch, 1)
    cores = min(0.97, 0.05 + min(calls, GENERATOR_PER_S) / GENERATOR_PER_S * 0.75 + 0.17 * is_saturated)
    found = run(
        cell,
        orders_per_s=rate,
        hold_cv=0.0,
        wait_ms=queueing_ms(cell) if cell.loop == "open" else round(waiting_ms(cell), 1),
        run=number,
        round=one,
        arm=arm,
        sweeps=sweeps,
        seed=1_000 + number,
        saturated=("generator",) if is_saturated else (),
        cpu=Cpu(generator=round(cores, 3), redis=0.2, database=None, machine=0.9, others=0.2, steal=0.0),
    )
    if cell == CONTROL:
        stock = found.checker.stock // 10
        return _voided(found, f"oversold by {found.checker.sold - stock} units", stock=stock, sold=found.checker.sold)
    if cell == VOID and one == 3:  # the one run
        return _voided(found, "orders refused while units were free: 1", refused_wrongly=1, stock=found.checker.stock)
    return found


def waiting_ms(cell: Cell) -> float:
    """Return what Little's law leaves for the wait of a closed loop."""
    return max(0.1, cell.buyers / calls_per_s(cell) * 1_000 - cell.hold_ms - 2 * OVERHEAD_MS)


def queueing_ms(cell: Cell) -> float:
    """Return the wait of M/D/1 below 98 % of the capacity, and a long one above."""
    hold = cell.hold_ms + OVERHEAD_MS
    busy = (cell.offered_per_s or 0.0) * hold / 1_000
    return round(busy / (1 - busy) * hold / 2, 1) if busy < 0.98 else 2_000.0  # there is no steady state


def _voided(found: Run, sentence: str, *, stock: int, sold: int | None = None, refused_wrongly: int = 0) -> Run:
    sold = found.checker.sold if sold is None else sold
    verdict = checker(stock=stock, sold=sold, oversold=max(0, sold - stock), refused_wrongly=refused_wrongly)
    return found.model_copy(update={"void": (sentence,), "orders_per_s": None, "checker": verdict})
