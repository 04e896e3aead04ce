"""`python -m bench.micro.counts --check` compares the counts with the baseline; `--write` writes the baseline."""

from __future__ import annotations

import argparse
import sys

from bench.micro.counts.command import count
from segmented.cli.console import Console
from segmented.errors import InvalidInput

parser = argparse.ArgumentParser(prog="python -m bench.micro.counts", description=__doc__)
choice = parser.add_mutually_exclusive_group()
choice.add_argument("--check", action="store_true", help="compare with the baseline (the default)")
choice.add_argument("--write", action="store_true", help="write the baseline")
options = parser.parse_args()
try:
    sys.exit(count(Console(), writes=options.write))
except InvalidInput as error:
    print(error, file=sys.stderr)  # noqa: T201  # the command's error message
    sys.exit(2)
