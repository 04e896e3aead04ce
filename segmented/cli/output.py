"""How commands write results: a table on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from segmented.errors import InvalidInput
from segmented.files import STDOUT, check_writable, said_elsewhere, said_in_file, whole_file, write_whole
from segmented.masking import masked
from segmented.models.ids import plain_text
from segmented.servers.announcement import announced

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_URL: Final = "redis://localhost:6379/0"
URL_VARIABLE: Final = "SEGMENTED_URL"
DATABASE_VARIABLE: Final = "SEGMENTED_DATABASE"
ELSEWHERE: Final = "@FILE or env:NAME reads it from a file or a variable."
"""A part of the help of options with an address."""
MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def output_file(text: str | Path) -> Path:
    """Check an option that names an output file, before anything changes. Raises typer.BadParameter."""
    file = Path(text)
    if not str(text).strip():
        raise typer.BadParameter("it names no file")
    try:
        check_writable(file, "the file")
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None
    return file


def data_folder(text: str) -> Path:
    """Check an option that names a folder. Raises typer.BadParameter."""
    if not text.strip():
        raise typer.BadParameter("it names no folder")
    return Path(text)


def address(text: str) -> str:
    """Return the address that an option gives, or names as @FILE or env:NAME. Raises typer.BadParameter."""
    try:
        return said_elsewhere(text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None


def _check_url(url: str) -> None:
    from segmented.stores.redis.addresses import parse_address  # noqa: PLC0415  # seldom needed this early

    parse_address(url)


def _check_database(url: str) -> None:
    with suppress(ModuleNotFoundError):  # the command that needs the database reports what is missing
        from segmented.orders.engine import parse  # noqa: PLC0415  # SQLAlchemy is optional

        parse(url)


def _running_url(context: typer.Context, url: str) -> str:
    """Return the given URL, or the one in a file, or that of a running `segmented server`, and print which."""
    if is_said(context, "url"):
        return url
    kept = said_in_file(URL_VARIABLE, check=_check_url)
    if kept is not None:
        return kept
    source = context.get_parameter_source("url")
    found = announced() if source is None or source.name == "DEFAULT" else None
    if found is None:
        return url
    typer.echo(f"using the running `segmented server`: {masked(found.url)}", err=True)
    return found.url


def _running_database(context: typer.Context, database: str | None) -> str | None:
    """Return the given database, or the one in a file, or that of a `segmented server` whose stock is used as well."""
    if not is_said(context, "database"):
        database = said_in_file(DATABASE_VARIABLE, check=_check_database) or database
    found = announced() if database is None else None
    return database if found is None or context.params.get("url", found.url) != found.url else found.database


SkuArgument = Annotated[
    str, typer.Argument(metavar="SKU", help="Stock keeping unit: name of the pool.", callback=plain_text)
]
UrlOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar=URL_VARIABLE,
        callback=_running_url,
        help=(
            "Redis or Valkey: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://; "
            "without it, a running `segmented server`."
        ),
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        parser=output_file,
        help="Write the result as a JSON object to this file; - is standard output.",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar=DATABASE_VARIABLE,
        callback=_running_database,
        help="Order database: postgresql://, mysql:// or sqlite:///path.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

Row = tuple[str, ...]


def is_terminal() -> bool:
    """Return whether a user can read the output and answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def require_somebody(what: str, *, yes: bool) -> bool:
    """Return whether to ask for confirmation of `what`; raises InvalidInput without --yes and without a terminal."""
    if not (yes or is_terminal()):
        raise InvalidInput(f"{what} needs --yes without a terminal")
    return not yes


def is_said(context: typer.Context, option: str) -> bool:
    """Return whether an option was given on the command line, not only in the environment."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def shown(name: str) -> str:
    """Return a name, quoted if it has terminal control characters: any program may have written the key."""
    return name if name.isprintable() else repr(name)


def span(seconds: float) -> str:
    """Return a duration in the unit that a reader would use."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.1f} s"


def table_of(heads: Row, rows: Iterable[Sequence[str]]) -> Table:
    """Create a table of rows; numbers are never cut off."""
    from rich.table import Table  # noqa: PLC0415  # only a terminal needs rich, which takes long to import
    from rich.text import Text  # noqa: PLC0415  # only a terminal needs rich, which takes long to import

    table = Table(*heads, show_header=any(heads), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table


def print_table(heads: Row, rows: Iterable[Sequence[str]]) -> None:
    """Print a table on a terminal, otherwise one line per row, separated by tabs."""
    if sys.stdout.isatty():
        from segmented.cli.console import Console  # noqa: PLC0415  # rich, which takes long to import

        Console().print(table_of(heads, rows))
        return
    for row in rows:
        typer.echo("\t".join(row))


def write_json(file: Path | None, content: dict[str, Any], *, is_secret: bool = False) -> bool:
    """Write an object to the file, if one is named: at once, so that a program that waits for it never reads a part.

    If `is_secret`, other accounts cannot read it. Return whether it went to standard output, which gets nothing else.
    """
    if file is not None:
        write_whole(file, json.dumps(content, indent=2) + "\n", is_secret=is_secret)
    return file == STDOUT


@contextmanager
def json_list(file: Path, name: str, rest: dict[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Write an object with a list, item by item: the block gets a function that writes one; `rest` follows the list.

    A file is replaced atomically when the block ends, and unchanged if it fails.
    """
    with whole_file(file) as out:
        marks = chain([""], repeat(","))
        out.write(f'{{\n  "{name}": [')
        yield lambda item: print(next(marks), json.dumps(item), sep="\n    ", end="", file=out)  # to a file
        out.write(f"\n  ],\n  {json.dumps(rest, indent=2)[1:-1].strip()}\n}}\n")


@contextmanager
def signals(*numbers: signal.Signals) -> Iterator[Callable[[float], bool]]:
    """Return a wait of so many seconds that says whether one of these signals has come, before it or during it.

    The interpreter itself writes their bytes into a socket. An event or a queue would not do: a handler that interrupts
    its wait waits for it, or the wait begins just after the signal has come and does not end.
    """
    woken, wakeup = socket.socketpair()
    wakeup.settimeout(0)

    def heard(seconds: float) -> bool:
        ready = select.select([woken], [], [], seconds)[0]
        return bool(ready) and any(number in numbers for number in woken.recv(4_096))

    with woken, wakeup:
        handlers = [signal.signal(number, lambda *_: None) for number in numbers]
        wakeup_before = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        try:
            yield heard
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in zip(numbers, handlers, strict=True):
                signal.signal(number, handler)


@contextmanager
def counting(words: str) -> Iterator[Callable[..., None]]:
    """Give a function that shows counts on a terminal, on standard error; `words` has a place for each of them."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import Progress, TextColumn  # noqa: PLC0415  # only a terminal needs rich, which takes long to import

    from segmented.cli.console import Console  # noqa: PLC0415  # rich, which takes long to import

    with Progress(TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as shown_now:
        line = shown_now.add_task("", total=None)
        yield lambda *counts: shown_now.update(line, description=words.format(*counts))
