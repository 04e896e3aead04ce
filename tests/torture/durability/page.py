"""Renders the tables of the page on losses: a pure function of the saved results, so that a test can compare them."""

from collections.abc import Iterator
from typing import Any, Final

from tests.torture.durability.cells import CELLS, FAULTS, PROFILES
from tests.torture.durability.run import LABELS, row_of
from tests.torture.durability.trial import STOCK


def render(results: dict[str, Any]) -> list[str]:
    """Return the parts of the page that a run writes: the table with its verdict, the legend, and the conditions."""
    return [
        "\n".join(_table(results)) + "\n" + _verdict(results),
        "\n".join(_legend()),
        _conditions(results["conditions"]),
    ]


COLUMNS: Final = (1, 2, 3, 5, 6)
"""Columns of the table, among `LABELS`: as many trials ran of each cell, and units sold twice are in a sentence."""


def _table(results: dict[str, Any]) -> Iterator[str]:
    """Yield the table of cells in which orders were forgotten, then a line per set-up with the others."""
    yield "| set-up | fault | " + " | ".join(LABELS[place] for place in COLUMNS) + " |"
    yield "| --- | --- |" + " ---: |" * len(COLUMNS)
    kept: dict[str, list[str]] = {}
    for cell in results["figures"]["cells"]:
        row = [f"skipped: {cell['skipped']}", *row_of(cell)[1:]] if cell["skipped"] else row_of(cell)
        if cell["trials"] and not any(trial["forgotten"] or trial["lost"] for trial in cell["trials"]):
            longest = row[-1].rpartition(", ")[2]
            kept.setdefault(cell["profile"], []).append(f"{cell['fault']} {row[1]} ({longest})")
        else:
            shown = row[: len(COLUMNS)] if cell["skipped"] else [row[place] for place in COLUMNS]
            yield f"| `{cell['profile']}` | {cell['fault']} | " + " | ".join(shown) + " |"
    yield "\nIn the other cells nothing was forgotten. Acknowledged orders (seconds until the last trial sold again):\n"
    for profile, cells in kept.items():
        yield f"- `{profile}`: {', '.join(cells)}"
    yield ""
    found = {f"{cell['profile']}/{cell['fault']}" for cell in results["figures"]["cells"]}
    missing = [cell.name for cell in CELLS if cell.name not in found]
    if missing:
        yield f"{len(missing)} cells were not run for this table: those of {', '.join(_set_ups(missing))}.\n"


def _set_ups(cells: list[str]) -> Iterator[str]:
    """Yield each set-up of some cells once, and its faults unless all of them are among the cells."""
    for profile in PROFILES:
        faults = [name.partition("/")[2] for name in cells if name.startswith(f"{profile.name}/")]
        if faults and len(faults) == sum(fault.fits(profile) for fault in FAULTS):
            yield f"`{profile.name}`"
        elif faults:
            yield f"`{profile.name}` with {' and '.join(faults)}"


def _verdict(results: dict[str, Any]) -> str:
    broken: list[str] = results["broken"]
    if broken:
        found = "".join(f"- {sentence}.\n" for sentence in broken)
        return f"These guarantees did not hold:\n\n{found}"
    twice = sum(trial["sold_twice"] for cell in results["figures"]["cells"] for trial in cell["trials"])
    return (
        "In every trial in which the server forgot acknowledged orders, a process noticed it. With an order database\n"
        f"no trial lost an order. Units sold twice, in all trials: {twice}.\n"
    )


def _legend() -> Iterator[str]:
    yield "| set-up | what it is |\n| --- | --- |"
    for profile in PROFILES:
        yield f"| `{profile.name}` | {profile.summary} |"
    yield "\n| fault | what happens |\n| --- | --- |"
    for fault in FAULTS:
        yield f"| {fault.name} | {fault.summary} |"


def _conditions(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    options = found["options"]
    return (
        f"{options['trials']} trials a cell, seed {options['seed']}, a stock of {STOCK:,} units each; {found['cores']} "
        f"cores for everything\n({found['cpu_model']}), load {found['load_before']:g} at the beginning; {versions}; "
        f"commit {found['commit'] or 'unknown'}.\n"
    )
