"""Writes the reference page of the command line from the commands' own help texts (`make docs`)."""

from __future__ import annotations

import contextlib
import io
import sys

from segmented.cli.main import NAME, build, run


def page() -> str:
    """Return the page in Markdown: the help of the command, then of each of its subcommands."""
    names = [info.name for info in build().registered_commands] + [info.name for info in build().registered_groups]
    words = [[name, *part] for name in sorted(name for name in names if name) for part in [[], *_parts(name)]]
    sections = [_section([]), *(_section(each) for each in words)]
    return "# The command line\n\nWritten by `make docs` from the help texts.\n\n" + "\n".join(sections)


def _parts(name: str) -> list[list[str]]:
    """Return the names of the commands of a group."""
    groups = [info.typer_instance for info in build(name).registered_groups if info.name == name]
    commands = [command for group in groups if group is not None for command in group.registered_commands]
    return [[command.name or command.callback.__name__] for command in commands if command.callback]


def _section(words: list[str]) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        run([*words, "--help"])
    lines = "\n".join(line.rstrip() for line in written.getvalue().strip().splitlines())
    return f"## {' '.join([NAME, *words])}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
