"""`python -m bench.peers`: our conformance suite on other libraries' locks, and redis-py's own tests on ours."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  # typer reads annotations at run time
from typing import Annotated

import typer

from bench.peers.command import run
from bench.peers.comparison import compare as run_comparison
from bench.peers.page import render as render_page
from bench.peers.redis_py_tests import ENVIRONMENT, is_as_expected, requirement, run_tests, summary
from bench.peers.registry import HERE, ROOT, interpreter_of

RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "explanation" / "lock-comparison.md"
ENVIRONMENTS = ROOT / ".peers"

program = typer.Typer(add_completion=False, help="Other libraries' locks under our conformance suite.")


@program.command()
def compare(
    *,
    peer: Annotated[list[str] | None, typer.Option(help="Run only this library; repeatable.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Run only this row; repeatable.")] = None,
    environments: Annotated[Path, typer.Option(help="Folder of the peers' environments.")] = ENVIRONMENTS,
) -> None:
    """Run every row on every lock. A whole run is saved and written to the page; a partial run is only shown."""
    comparison = run_comparison(
        peers=peer or [],
        rows=row or [],
        python_of=lambda one: interpreter_of(one, environments),
        tell=typer.echo,
    )
    if peer or row:
        typer.echo("part of a run: nothing is kept")
        return
    RESULTS.write_text(json.dumps(comparison, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(comparison), encoding="utf-8")
    typer.echo(f"written: {RESULTS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")


@program.command()
def render() -> None:
    """Write the page again from the saved results."""
    comparison = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(render_page(comparison), encoding="utf-8")


@program.command()
def redis_py_tests(
    *, environments: Annotated[Path, typer.Option(help="Folder of the peers' environments.")] = ENVIRONMENTS
) -> None:
    """Run redis-py's own lock tests, from its source distribution, on segmented.compat. Exit code 1 for surprises."""
    runs = run_tests(interpreter_of(ENVIRONMENT, environments))
    typer.echo(f"the lock tests of {requirement()} on segmented.compat")
    typer.echo(summary(runs))
    raise typer.Exit(0 if is_as_expected(runs) else 1)


if __name__ == "__main__":
    run(program)
