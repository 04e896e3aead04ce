"""The command `segmented`, also as `python -m segmented`: prints the version, and runs the command line.

The version needs no other package; the command line needs those of the extra `cli`.
"""

from __future__ import annotations

import sys

import segmented
from segmented.imports import COMMANDS, missing_package, needs
from segmented.process import EXIT_INVALID_INPUT, escape_output, interrupted, no_output, output_failed, tell


def main() -> None:
    """Run the command line and exit with its code."""
    escape_output()
    try:
        exit_code = _run(sys.argv[1:]) if sys.stdout is not None else no_output()
    except KeyboardInterrupt:
        exit_code = interrupted()
    except OSError as error:
        exit_code = output_failed(error)
    sys.exit(exit_code)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write(f"segmented {segmented.__version__}\n")
        sys.stdout.flush()
        return 0
    try:
        from segmented.cli.main import run  # noqa: PLC0415  # with the packages of an extra
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        tell(needs("the command line", package, COMMANDS.get("".join(arguments[:1]))))
        return EXIT_INVALID_INPUT
    return run(arguments)


if __name__ == "__main__":
    main()
