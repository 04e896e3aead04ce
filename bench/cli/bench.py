"""`segmented bench`: a group with one command per benchmark, and commands that read results.

Without a command name it runs `granularity` with the given options.
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
    """A group with a default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own copy of click
        """Insert the default command. Raises InvalidInput for an unknown benchmark."""
        return super().parse_args(ctx, whole(args, list(self.commands), ctx.help_option_names))


def whole(words: list[str], known: Sequence[str], helps: Sequence[str] = ("--help",)) -> list[str]:
    """Return the arguments with a command name first. Raises InvalidInput for an unknown name."""
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
    """Exist so that typer keeps the commands a group."""


bench.command()(granularity)
bench.command()(orders)
add_fixed(bench)
for tool in (report, compare, lint, counts):
    bench.command()(tool)
