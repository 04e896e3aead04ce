"""`segmented bench`: a group with a command a benchmark, and those that read what benchmarks wrote.

Without a name it is `granularity`, with the options given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from bench.cli.fixed import add_fixed
from bench.cli.granularity import granularity, orders
from bench.cli.tools import compare, counts, lint, report
from bench.granularity.plan import nearest
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT: Final = "granularity"


class BenchGroup(TyperGroup):
    """A group that has a command for those who name none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own copy of click
        """Put the default in. Raises InvalidInput for a benchmark that there is not."""
        return super().parse_args(ctx, whole(args, list(self.commands), ctx.help_option_names))


def whole(words: list[str], known: Sequence[str], helps: Sequence[str] = ("--help",)) -> list[str]:
    """Return the words with a name as the first one. Raises InvalidInput for a name that there is not."""
    if not words or (words[0].startswith("-") and words[0] not in helps):
        return [DEFAULT, *words]
    if not words[0].startswith("-") and words[0] not in known:
        message = f"there is no benchmark {words[0]!r}{nearest(words[0], known)}"
        raise InvalidInput(message)
    return words


HELP: Final = "Measure, and read what was measured. Without a name: granularity, with its options, as in bench --quick."
bench = typer.Typer(cls=BenchGroup, help=HELP)


@bench.callback(help=HELP)
def _group() -> None:
    """Keep the commands a group."""


bench.command()(granularity)
bench.command()(orders)
add_fixed(bench)
for tool in (report, compare, lint, counts):
    bench.command()(tool)
