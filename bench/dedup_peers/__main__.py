"""`python -m bench.dedup_peers compare`: run the cases on all contenders, and write the page about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.dedup_peers.comparison import compare as run_comparison, merged
from bench.dedup_peers.page import render as render_page
from bench.dedup_peers.registry import HERE, Contender
from bench.peers.command import run
from bench.peers.registry import ROOT, interpreter_of

RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "reference" / "celery-dedup-compared.md"
ENVIRONMENTS = ROOT / ".peers"

program = typer.Typer(add_completion=False, help="Ways to deduplicate Celery tasks, under the same faults.")


@program.command()
def compare(
    *,
    only: Annotated[list[str] | None, typer.Option(help="Run only this contender; repeatable.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="Run only this case, without saving; repeatable.")] = None,
    json_file: Annotated[
        Path, typer.Option("--json", help="File of the saved results, from which the page is written.")
    ] = RESULTS,
    environments: Annotated[Path, typer.Option(help="Folder of the contenders' environments.")] = ENVIRONMENTS,
) -> None:
    """Run every case on every contender. With --only, the saved results of the others are kept."""
    found = run_comparison(
        only=only or [], cases=case or [], python_of=lambda one: _python_of(one, environments), tell=typer.echo
    )
    if case:
        typer.echo("part of a run: nothing is kept")
        return
    record = merged(_kept(json_file), found)
    json_file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(record), encoding="utf-8")
    typer.echo(f"written: {json_file}, {PAGE}")


@program.command()
def render() -> None:
    """Write the page again from the saved results."""
    PAGE.write_text(render_page(merged(_kept(RESULTS), ())), encoding="utf-8")


def _python_of(contender: Contender, environments: Path) -> Path:
    if contender.environment is None:
        return Path(sys.executable)
    return interpreter_of(contender.environment, environments)


def _kept(record: Path) -> dict[str, Any] | None:
    if not record.exists():
        return None
    kept: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return kept


if __name__ == "__main__":
    run(program)
