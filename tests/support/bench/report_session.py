"""A whole session made up for tests of the report: every sweep in small, a void cell, hollow points, a history."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import zstandard

from bench.engine.cell import Cell
from bench.engine.record import Counts, EndLine, ResultFile, Run, SessionLine, as_line
from tests.support.bench.records import checker, end_line, run as plausible_run, session_line

ROUNDS = 3
RANDOM = "segments-random"
AA = Cell(strategy="segment-locks", segments=16, section="sleep", hold_ms=20.0)
"""Runs twice a round."""


def rate_of(cell: Cell, round_: int) -> float:
    """Orders a second as the models have it, less a few percent that differ from round to round."""
    wobble = 0.95 + 0.012 * ((round_ * 7 + len(cell.strategy) + cell.segments) % 4)
    hold = max(cell.hold_ms, 0.15 + cell.rtt_ms) / 1_000 + cell.rtt_ms / 500
    lanes, n = cell.segments, cell.buyers
    if cell.strategy == "global-lock":
        ideal = 1 / hold
    elif cell.strategy == "lock-free":
        ideal = min(n / (hold + 0.004), 9_000.0)
    elif cell.strategy == RANDOM:
        ideal = lanes / hold * n / (n + lanes - 1)
    else:
        ideal = min(lanes, n) / hold / (1 + 0.004 * n)
    top = min(ideal * cell.batch, 34_000.0)
    return round(wobble * (top if cell.offered_per_s is None else min(cell.offered_per_s, top)), 3)


def run(cell: Cell, number: int, round_: int, *, arm: Literal["A", "B"] = "A", void: tuple[str, ...] = ()) -> Run:
    """Make a run of the cell that is as it should be, but for what voids it."""
    rate = rate_of(cell, round_ + (arm == "B"))
    sold = int(rate * 3)
    wrongly = 12 if void and "refused" in void[0] else 0
    closed = cell.model_copy(update={"loop": "closed", "offered_per_s": None})
    load = (cell.offered_per_s or 0) / max(rate_of(closed, 0), 1)
    return plausible_run(
        cell,
        orders_per_s=rate,
        run=number,
        round=round_,
        arm=arm,
        sweeps=("made-up",),
        seed=number,
        void=void,
        saturated=("generator",) if rate > 5_000 else (),
        counts=Counts(planned=sold, sent=sold, sold=sold, sold_out=40, failed=0, shed=int(sold * max(0, load - 1))),
        checker=checker(
            stock=sold + wrongly,
            sold=sold,
            oversold=7 if "oversold by 7 units" in void else 0,
            refused_wrongly=wrongly,
            stranded=wrongly,
        ),
    )


def cells() -> list[Cell]:
    """Every sweep in small."""
    base: dict[str, Any] = {"section": "sleep", "hold_ms": 20.0, "buyers": 64}
    found = [Cell(strategy=name, segments=k, **base) for name in ("segment-locks", RANDOM) for k in (1, 4, 16, 64)]
    found += [Cell(strategy=name, **base) for name in ("global-lock", "lock-free", "no-lock")]
    found += [Cell(strategy="segment-locks", segments=16, **{**base, "buyers": n}) for n in (1, 4, 8, 16, 32, 128)]
    for hold in (0.0, 1.0, 5.0):
        part: dict[str, Any] = {"section": "sleep" if hold else "none", "hold_ms": hold}
        found += [Cell(strategy="segment-locks", segments=k, **part) for k in (1, 4, 16, 64)]
        found += [Cell(strategy=name, **part) for name in ("global-lock", "lock-free")]
    for rtt in (0.5, 2.0):
        found += [Cell(strategy="segment-locks", segments=k, rtt_ms=rtt, **base) for k in (1, 16)]
        found += [Cell(strategy="lock-free", rtt_ms=rtt, **base)]
    found += [Cell(strategy="segment-locks", segments=16, batch=b, **base) for b in (4, 16, 64)]
    found += [
        Cell(strategy=name, segments=1, section="commit", hold_ms=20.0) for name in ("segment-locks", "global-lock")
    ]
    found += [
        Cell(strategy="segment-locks", segments=16, loop="open", offered_per_s=o, **base)
        for o in (150.0, 350.0, 500.0, 600.0, 900.0)
    ]
    found += [Cell(strategy="global-lock", loop="open", offered_per_s=o, **base) for o in (10.0, 30.0, 45.0, 60.0)]
    found += [Cell(strategy="segment-locks", segments=16, loop="open", offered_per_s=900.0, arrivals="spike", **base)]
    found += [
        Cell(strategy=name, segments=1, stock=1, case="one-unit", **base) for name in ("segment-locks", "lock-free")
    ]
    return found


VOID = {"no-lock": "oversold by 7 units", RANDOM: "orders refused while units were free: 12"}


@cache
def _runs() -> tuple[Run, ...]:
    runs: list[Run] = []
    for round_ in range(ROUNDS):
        for cell in cells():
            is_void = cell.strategy == "no-lock" or (cell.strategy == RANDOM and cell.segments == 64)
            void = (VOID[cell.strategy],) if is_void else ()
            runs.append(run(cell, len(runs), round_, void=void))
            if cell == AA:
                runs.append(run(cell, len(runs), round_, arm="B"))
    return tuple(runs)


def session(folder: Path | None = None) -> ResultFile:
    """Make the session; with a folder, write its files there too."""
    runs = list(_runs())
    environment = {
        "code": {"commit": "0" * 40, "python": "3.11"},
        "machine": {"cores": 2, "cpu_model": "made up"},
        "servers": {"redis": {"name": "valkey", "version": "9.1.2", "config": {"appendonly": "no"}}},
        "placement": "one machine",
    }
    plan = {
        "rounds": ROUNDS,
        "seconds": 3.0,
        "stop": "when every cell has its runs",
        "exclusions": ["a broken promise"],
        "hypotheses": [
            {"id": "H1", "sentence": "16 locks sell more than one", "sweep": "made-up", "refuted_by": "a ratio below 1"}
        ],
        "sweeps": [{"name": "made-up", "question": "what do more segments bring?", "figures": ["F1"]}],
    }
    first = session_line(plan=plan, plan_commit=None, is_quick=True, left_out=("most of it",), environment=environment)
    last = end_line(len(runs))
    if folder is not None:
        runs[1] = with_history(folder, runs[1])
        lines: list[SessionLine | Run | EndLine] = [first, *runs, last]
        (folder / "results.jsonl").write_text("".join(as_line(one) for one in lines), encoding="utf-8")
    return ResultFile(session=first, runs=tuple(runs), end=last)


def with_history(folder: Path, one: Run) -> Run:
    """Write calls beside the results."""
    (folder / "histories").mkdir(parents=True)
    calls = [
        {
            "asked": 0.01 * n,
            "done": 0.01 * n + 0.02 + 0.001 * (n % 7),
            "sold": int(n < 260),
            "sold_out": int(n >= 260),
            "failed": int(n == 77),
        }
        for n in range(300)
    ]
    packed = zstandard.ZstdCompressor().compress("\n".join(json.dumps(call) for call in calls).encode())
    (folder / "histories" / "0001.jsonl.zst").write_bytes(packed)
    return one.model_copy(update={"history": "histories/0001.jsonl.zst"})
