"""`python -m tests.conformance`: other libraries' locks under our suite, ways to deduplicate, and redis-py's tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.environments import ROOT, interpreter_of
from segmented.errors import SegmentedError
from tests.conformance.beat import comparison as beat_comparison, page as beat_page
from tests.conformance.dedup import comparison as dedup_comparison, page as dedup_page, registry as dedup_registry
from tests.conformance.locks import comparison as lock_comparison, page as lock_page, registry as lock_registry
from tests.conformance.locks.redis_py_tests import ENVIRONMENT, is_as_expected, requirement, run_tests, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.dedup.registry import Contender

RESULTS = "results.json"
LOCK_PAGE = ROOT / "docs" / "explanation" / "lock-comparison.md"
DEDUP_PAGE = ROOT / "docs" / "reference" / "celery-dedup-compared.md"
BEAT_PAGE = ROOT / "docs" / "reference" / "celery-beat-compared.md"
EnvironmentsOption = Annotated[Path, typer.Option(help="Folder of the libraries' environments.")]
ENVIRONMENTS = ROOT / ".peers"

program = typer.Typer(add_completion=False, help="Other libraries beside this one, under the same faults.")
locks = typer.Typer(help="Other libraries' locks under our conformance suite.")
dedup = typer.Typer(help="Ways to deduplicate Celery tasks, under the same faults.")
beat = typer.Typer(help="Schedulers of which several may run, under the same faults.")
program.add_typer(locks, name="locks")
program.add_typer(beat, name="beat")
program.add_typer(dedup, name="dedup")


@locks.command("compare")
def compare_locks(
    *,
    peer: Annotated[list[str] | None, typer.Option(help="Run only this library; repeatable.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Run only this row; repeatable.")] = None,
    environments: EnvironmentsOption = ENVIRONMENTS,
) -> None:
    """Run every row on every lock. A whole run is saved and written to the page; a partial run is only shown."""
    found = lock_comparison.compare(
        peers=peer or [], rows=row or [], python_of=lambda one: interpreter_of(one, environments), tell=typer.echo
    )
    _keep(found, lock_registry.HERE / RESULTS, LOCK_PAGE, lock_page.render, is_part=bool(peer or row))


@locks.command("render")
def render_locks() -> None:
    """Write the page again from the saved results."""
    LOCK_PAGE.write_text(lock_page.render(_kept(lock_registry.HERE / RESULTS) or {}), encoding="utf-8")


@locks.command()
def redis_py_tests(*, environments: EnvironmentsOption = ENVIRONMENTS) -> None:
    """Run redis-py's own lock tests, from its source distribution, on segmented.compat. Exit code 1 for surprises."""
    runs = run_tests(interpreter_of(ENVIRONMENT, environments))
    typer.echo(f"the lock tests of {requirement()} on segmented.compat")
    typer.echo(summary(runs))
    raise typer.Exit(0 if is_as_expected(runs) else 1)


@dedup.command("compare")
def compare_dedup(
    *,
    only: Annotated[list[str] | None, typer.Option(help="Run only this contender; repeatable.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="Run only this case, without saving; repeatable.")] = None,
    environments: EnvironmentsOption = ENVIRONMENTS,
) -> None:
    """Run every case on every contender. With --only, the saved results of the others are kept."""

    def python_of(contender: Contender) -> Path:
        known = contender.environment
        return Path(sys.executable) if known is None else interpreter_of(known, environments)

    found = dedup_comparison.compare(only=only or [], cases=case or [], python_of=python_of, tell=typer.echo)
    file = dedup_registry.HERE / RESULTS
    _keep(dedup_comparison.merged(_kept(file), found), file, DEDUP_PAGE, dedup_page.render, is_part=bool(case))


@dedup.command("render")
def render_dedup() -> None:
    """Write the page again from the saved results."""
    record = dedup_comparison.merged(_kept(dedup_registry.HERE / RESULTS), ())
    DEDUP_PAGE.write_text(dedup_page.render(record), encoding="utf-8")


@beat.command("compare")
def compare_beats(*, environments: EnvironmentsOption = ENVIRONMENTS) -> None:
    """Run every case on both schedulers, save the results and write the page."""
    found = beat_comparison.compare(python_of=lambda one: interpreter_of(one, environments), tell=typer.echo)
    _keep(found, beat_comparison.HERE / RESULTS, BEAT_PAGE, beat_page.render, is_part=False)


@beat.command("render")
def render_beats() -> None:
    """Write the page again from the saved results."""
    BEAT_PAGE.write_text(beat_page.render(_kept(beat_comparison.HERE / RESULTS) or {}), encoding="utf-8")


def _kept(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


def _keep(
    record: dict[str, Any], file: Path, page: Path, render: Callable[[dict[str, Any]], str], *, is_part: bool
) -> None:
    if is_part:
        typer.echo("part of a run: nothing is kept")
        return
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page.write_text(render(record), encoding="utf-8")
    typer.echo(f"written: {file.relative_to(ROOT)}, {page.relative_to(ROOT)}")


def run() -> None:
    """Run the program; print a failure as one sentence, and exit with 2."""
    try:
        program()
    except SegmentedError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    run()
