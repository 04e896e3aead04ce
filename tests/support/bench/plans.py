"""Plans for tests: a whole small one, to be changed by text."""

from pathlib import Path
from typing import Final

from bench.engine.plan import LoadedPlan, read_plan

SMALL: Final = """
schema = "segmented-bench-plan/1"
rounds = 2
seconds = 0.5
warm_up = 0.1
calibration = 0.4
seed = 7
stop = "After two rounds."
exclusions = ["A broken promise."]
orders = ["hold"]

[quick]
rounds = 1
seconds = 0.4
warm_up = 0.1
calibration = 0.3
budget = 60

[cells.four]
strategy = "segment-locks"
segments = 4
section = "sleep"
hold_ms = 5.0

[[hypotheses]]
id = "H1"
sentence = "Four locks sell more than one."
sweep = "k"
refuted_by = "They do not."

[[sweeps]]
name = "k"
question = "How does the rate grow with K?"
figures = ["F1"]
base = { strategy = "segment-locks", section = "sleep", hold_ms = 5.0, buyers = 8 }
axes = { segments = [1, 4] }
quick = { axes = { segments = [4] } }

[[sweeps]]
name = "hold"
question = "What does the hold decide?"
seconds = 0.6
base = { strategy = "segment-locks", segments = 4, buyers = 8 }
axes = { hold = [{ section = "none" }, { section = "sleep", hold_ms = 5.0 }] }

[[sweeps]]
name = "load"
question = "What do users feel?"
base = { strategy = "segment-locks", segments = 4, section = "sleep", hold_ms = 5.0, loop = "open" }
load = { of = "four", percent = [50, 95] }

[[sweeps]]
name = "a-a"
question = "How much does a cell differ from itself?"
base = { strategy = "segment-locks", segments = 4, section = "sleep", hold_ms = 5.0, buyers = 8 }
a_and_a = true
"""

Change = tuple[str, str]
"""A part of the plan's text, and what stands there instead."""
ONE_CELL: Final[Change] = ("segments = [1, 4]", "segments = [4]")


def written(folder: Path, *changes: Change) -> Path:
    """Write the small plan, with parts of its text changed."""
    text = SMALL
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the small plan has no {old!r}")
        text = text.replace(old, new, 1)
    file = folder / "plan.toml"
    file.write_text(text, encoding="utf-8")
    return file


def small_plan(folder: Path, *changes: Change) -> LoadedPlan:
    """Read it."""
    return read_plan(written(folder, *changes))
