"""Renders the tables of the page on losses: a pure function of the saved results, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.torture.durability.cells import CELLS, FAULTS, PROFILES
from tests.torture.durability.run import LABELS, row_of
from tests.torture.durability.trial import STOCK

if TYPE_CHECKING:
    from collections.abc import Iterator


def render(results: dict[str, Any]) -> list[str]:
    """Return the parts of the page that a run writes: the table with its verdict, the legend, and the conditions."""
    return [
        "\n".join(_table(results)) + "\n" + _verdict(results),
        "\n".join(_legend()),
        _conditions(results["conditions"]),
    ]


def _table(results: dict[str, Any]) -> Iterator[str]:
    yield "| set-up | fault | " + " | ".join(LABELS) + " |"
    yield "| --- | --- |" + " ---: |" * len(LABELS)
    for cell in results["figures"]["cells"]:
        row = [f"skipped: {cell['skipped']}", *row_of(cell)[1:]] if cell["skipped"] else row_of(cell)
        yield f"| `{cell['profile']}` | {cell['fault']} | " + " | ".join(row) + " |"
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
    return (
        "In every trial in which the server forgot acknowledged orders, a process noticed it. With an order database\n"
        "no trial lost an order or sold a unit twice.\n"
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
