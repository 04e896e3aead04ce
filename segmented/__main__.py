"""The command `segmented`, also as `python -m segmented`: tells the version itself, and runs the command line.

The version needs no package besides Python; the command line needs those of the extra `cli`.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

import segmented
from segmented.imports import missing_package, needs

FOREIGN: Final = "segmented"
"""A distribution on the package index that has our import name, and is not ours."""
EXIT_INVALID_INPUT: Final = 2


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        sys.stdout.write("\n".join([f"segmented {segmented.__version__}", *_warnings(), ""]))
        return
    try:
        from segmented.cli.main import run  # noqa: PLC0415  # with the packages of an extra
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        sys.stderr.write(f"segmented: {needs('the command line', package)}\n")
        sys.exit(EXIT_INVALID_INPUT)
    sys.exit(run(arguments))


def _warnings() -> list[str]:
    """Return a sentence if another distribution shares our import name."""
    try:
        found = distribution(FOREIGN)
    except PackageNotFoundError:
        return []
    other = f"the distribution {FOREIGN!r} {found.version} is installed as well and has the same import name"
    return [f"{other}: uninstall both, then install 'segmented-locks'"]


if __name__ == "__main__":
    main()
