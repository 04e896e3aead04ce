"""The command `segmented`: finds its commands, runs one, and turns errors into a sentence and an exit code.

A command is a plain function with typer's annotations, or a `typer.Typer` for a group of them. It is found

1. in this folder: `server.py` offers `server` (a module without an attribute of its own name is a helper), or
2. in any installed package, by an entry point of the group `segmented.commands`.

Only the requested command is imported; the help alone imports all of them. So `segmented server` does not wait for
Locust, nor `--version` for anything, and a missing extra disables only its own commands.

Exit codes: 0 done; 1 failed; 2 unusable input; 130 interrupted; 141 the reader of the output is gone; 128 plus the
number of a signal that ended a command after it had cleaned up, such as 143 for SIGTERM.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
import typer.main

import segmented.cli
from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.imports import COMMANDS, EXTRAS, install, missing_package, needs, without_collecting
from segmented.models.ids import shortened, visible
from segmented.process import EXIT_INVALID_INPUT, interrupted, output_failed, tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typer import TyperException
else:  # before typer 0.28 the errors of a command line are those of click
    TyperException = getattr(typer, "TyperException", None) or import_module("click").ClickException

NAME: Final = "segmented"
DISTRIBUTION: Final = "segmented-locks"
GROUP: Final = "segmented.commands"
CHECKOUT: Final = Path(segmented.__file__).parent.parent
OWN: Final = ("advise", "dedup", "exporter", "lock", "orders", "pool", "sell", "server", "watch")
BESIDE: Final = {"exporter": "watch"}
"""Commands in another command's module."""
MEASURING: Final = {"bench": "bench.cli", "demo": "bench.demo", "torture": "tests.torture.cli"}
"""Commands of the checkout, which are not installed with the library, by the module that has them."""
MARKUP: Final[Literal["rich"] | None] = "rich" if sys.stdout.isatty() else None

SHOW: Final = "segmented pool show SKU"
GUESSES: Final = {
    **dict.fromkeys(("pool watch", "pool monitor", "pool top", "top", "monitor"), "segmented watch SKU"),
    **dict.fromkeys(("pool status", "pool info", "pool state", "pool get", "pool stats", "status"), SHOW),
    **dict.fromkeys(("pool ls", "pools"), "segmented pool list"),
    **dict.fromkeys(
        ("pool rm", "pool remove", "pool drop", "pool destroy"),
        "segmented pool close SKU, then segmented pool delete SKU; segmented pool archive SKU --to FILE keeps a copy",
    ),
    **dict.fromkeys(("pool create", "pool new", "pool add"), "segmented pool open SKU --stock N --segments K"),
    **dict.fromkeys(
        ("orders refund", "orders return", "pool return", "refund"),
        "segmented pool refund SKU ORDER --return-id ID, which gives the units of a sold order back",
    ),
    **dict.fromkeys(
        ("pool repair --from-database", "pool repair --database"),
        "segmented pool rebuild SKU --database URL --selling",
    ),
    **dict.fromkeys(("orders status", "orders get", "orders info"), "segmented orders show SKU ORDER_ID"),
    **dict.fromkeys(("orders retry", "orders requeue"), "segmented orders replay SKU"),
    **dict.fromkeys(("lock status", "lock info", "lock get"), "segmented lock show NAME"),
    **dict.fromkeys(("lock ls", "locks"), "segmented lock list"),
    **dict.fromkeys(
        ("lock release", "lock unlock", "lock rm", "lock delete", "lock break", "unlock"), "segmented lock revoke NAME"
    ),
    **dict.fromkeys(("worker", "workers"), "celery -A segmented.celery.app worker -B"),
    **dict.fromkeys(("start", "serve", "run", "up"), "segmented server"),
}
"""Commands that users guess -> the one to use."""
HELP: Final = ("--help", "-h")
COMPLETION: Final = "_SEGMENTED_COMPLETE"
"""The variable in which a shell asks for completions."""
EXIT_FAILED: Final = 1
NOT_PARSED: Final = ": Input should be "
PARSING: Final = ", unable to parse "


def run(arguments: Sequence[str]) -> int:
    """Run one command; report each known error as one sentence on stderr and an exit code."""
    try:
        exit_code = _perform(list(arguments))
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except InvalidInput as error:
        return _fail(str(error), EXIT_INVALID_INPUT)
    except StoreUnavailable as error:
        return _fail(_with_hint(str(error)), EXIT_FAILED)
    except SegmentedError as error:
        return _fail(str(error), EXIT_FAILED)
    except TyperException as error:
        return _fail(_sentence(error), error.exit_code)
    except ModuleNotFoundError as error:  # of a command that imports what it needs while it runs
        package = missing_package(error)
        if package is None:
            raise
        return _fail(needs(f"{NAME} {arguments[0]}", package), EXIT_INVALID_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except OSError as error:
        return output_failed(error)
    return exit_code


def build(*asked: str) -> typer.Typer:
    """Create the application with the existing ones of the commands `asked`, or with all that can be imported.

    Raises InvalidInput if a requested command needs a package that is not installed.
    """
    known = _commands()
    wanted = [name for name in asked if name in known] if asked else sorted(known)
    missing: dict[str, ModuleNotFoundError] = {}
    application = typer.Typer(
        name=NAME, add_completion=True, rich_markup_mode=MARKUP, context_settings={"help_option_names": list(HELP)}
    )
    for name in wanted:
        try:
            with without_collecting():
                command = getattr(import_module(known[name].module), known[name].attr, None)
        except ModuleNotFoundError as error:
            missing[name] = error
            continue
        if isinstance(command, typer.Typer):
            application.add_typer(command, name=name)
        elif command is not None:
            application.command(name)(command)
    for name in asked:
        if name in missing:
            raise InvalidInput(f"{NAME} {name} cannot run: {_lacks(name, missing[name])}")
    notes = [f"Not available: {name} ({_lacks(name, error)})." for name, error in missing.items()]
    application.callback(invoke_without_command=True, epilog="\n\n".join(notes))(_root)
    return application


def _perform(arguments: list[str]) -> int:
    if COMPLETION in os.environ:
        typer.main.get_command(build())(prog_name=NAME)  # answers the shell and exits
    asked = "" if not arguments or arguments[0].startswith("-") else arguments[0]
    if asked:
        _check_known(asked)
    lists_all = not arguments or bool(set(HELP) & set(arguments[:1]))
    command = typer.main.get_command(build() if lists_all else build(asked))
    if arguments == [asked] and _is_group(command, asked):
        arguments = [asked, HELP[0]]
    with command.make_context(NAME, arguments) as context:
        command.invoke(context)
    return 0


def _check_known(name: str) -> None:
    """Raise InvalidInput for a command that does not exist, with the nearest one that does."""
    known = _commands()
    if name in known:
        return
    if name in MEASURING:
        raise InvalidInput(
            f"{NAME} {name} measures the library, and comes with its checkout, not with the installed package: "
            "clone the repository, run `make setup` there, and use .venv/bin/segmented"
        )
    if name in GUESSES:
        raise InvalidInput(f"there is no command {name!r}: use {GUESSES[name]}")
    near = get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else f": see {NAME} --help"
    raise InvalidInput(f"there is no command {name!r}{meant}")


def _is_group(command: object, name: str) -> bool:
    """Return whether a command is a group that shows its help when called without a subcommand."""
    commands: Mapping[str, object] = getattr(command, "commands", {})
    return bool(getattr(commands.get(name), "no_args_is_help", False))


def _root(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Sell a limited stock, fast, without ever selling a unit twice."""
    if show_version:
        typer.echo(f"{NAME} {segmented.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _commands() -> dict[str, EntryPoint]:
    found = {name: EntryPoint(name, f"segmented.cli.{BESIDE.get(name, name)}:{name}", GROUP) for name in OWN}
    if (CHECKOUT / "bench" / "cli.py").is_file() and (CHECKOUT / "pyproject.toml").is_file():
        found |= {name: EntryPoint(name, f"{module}:{name}", GROUP) for name, module in MEASURING.items()}
    return {**{point.name: point for point in entry_points(group=GROUP)}, **found}


def _lacks(command: str, error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    if package in {"segmented", "bench", "tests"}:
        return f"this installation has no {error.name}"
    extras = COMMANDS.get(command) or EXTRAS.get(package, "all")
    return f"{package} is not installed; {install(extras)}"


def _sentence(error: TyperException) -> str:
    message = " ".join(error.format_message().split()).replace(": Value error, ", ": ")
    wrong: list[dict[str, Any]] = getattr(
        error.__cause__, "errors", list
    )()  # of pydantic, whose message leaves the value out
    if wrong:
        message = message.replace(NOT_PARSED, f": {shortened(wrong[0]['input'])} should be ").partition(PARSING)[0]
    context = getattr(error, "ctx", None)
    guess = re.match(r"No such (?:command '|option: )([^' ]+[^' .])", message)
    path = "" if context is None or guess is None else f"{context.command_path} {guess[1]}".removeprefix(f"{NAME} ")
    if path in GUESSES:
        return f"there is no command {path!r}: use {GUESSES[path]}"
    message = message.replace("%Y-%m-%d", "YYYY-MM-DD").replace("%H:%M", "HH:MM")
    is_guessed = "Did you mean" in message or "Possible option" in message
    if context is None or is_guessed or not message.startswith(("No such ", "Missing ")):
        return message
    return f"{message.removesuffix('.')}: see {context.command_path} --help"


def _with_hint(sentence: str) -> str:
    """Add how to get a server, if none answers where a command without an address looks for it."""
    from segmented.cli.output import DEFAULT_URL  # noqa: PLC0415  # the command that failed has imported it

    return f"{sentence.removesuffix('.')}; `{NAME} server` starts one" if f" {DEFAULT_URL}: " in sentence else sentence


def _fail(sentence: str, exit_code: int) -> int:
    tell(visible(sentence))
    return exit_code
