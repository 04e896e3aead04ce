"""Writes the reference page of the command line from the commands' own help texts (`make docs`)."""

from __future__ import annotations

import contextlib
import io
import sys

from segmented.cli.main import NAME, build, run


def page() -> str:
    """Return the page in Markdown: the help of the command itself, then of each command it has."""
    names = [info.name for info in build().registered_commands] + [info.name for info in build().registered_groups]
    sections = [_section([]), *(_section([name]) for name in sorted(name for name in names if name))]
    return "# The command line\n\nWritten by `make docs` from the help texts.\n\n" + "\n".join(sections)


def _section(words: list[str]) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        run([*words, "--help"])
    lines = "\n".join(line.rstrip() for line in written.getvalue().strip().splitlines())
    return f"## {' '.join([NAME, *words])}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
