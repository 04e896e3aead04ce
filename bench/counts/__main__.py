"""`python -m bench.counts --check` compares what operations cost with the baseline; `--write` writes it."""

from __future__ import annotations

import argparse
import sys

from bench.counts.command import count
from segmented.cli.console import Console
from segmented.errors import InvalidInput

parser = argparse.ArgumentParser(prog="python -m bench.counts", description=__doc__)
choice = parser.add_mutually_exclusive_group()
choice.add_argument("--check", action="store_true", help="compare with the baseline (the default)")
choice.add_argument("--write", action="store_true", help="write the baseline anew")
options = parser.parse_args()
try:
    sys.exit(count(Console(), writes=options.write))
except InvalidInput as error:
    print(error, file=sys.stderr)  # noqa: T201  # a command's own words
    sys.exit(2)
