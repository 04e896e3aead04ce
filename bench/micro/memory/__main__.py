"""`python -m bench.micro.memory`: measure the bytes of an order; `--write` saves them and writes the page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.display import display_on
from bench.micro.memory.measure import ORDERS, measure
from bench.micro.memory.page import render
from segmented.cli.console import Console
from segmented.errors import InvalidInput
from segmented.files import write_whole

ROOT = Path(__file__).resolve().parents[3]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "explanation" / "memory.md"

parser = argparse.ArgumentParser(prog="python -m bench.micro.memory", description=__doc__)
parser.add_argument("--orders", type=int, default=ORDERS, help=f"orders of each kind  [default: {ORDERS}]")
parser.add_argument("--write", action="store_true", help="save the results, and write the page")
options = parser.parse_args()
if options.orders < 1:
    parser.error(f"--orders {options.orders} is not a number of orders: give a whole number from 1")
console = Console()
try:
    with display_on(console).strategy("memory") as progress:
        results = measure(options.orders, progress)
    if options.write:
        write_whole(RESULTS, json.dumps(results, indent=2) + "\n")
        write_whole(PAGE, render(results))
except InvalidInput as error:
    print(error, file=sys.stderr)  # noqa: T201  # the command's error message
    sys.exit(2)
for kind in results["kinds"]:
    said = f"{kind['name']}: {kind['memory']:.0f} bytes of memory, {kind['ledger']:.0f} of them in the ledger"
    console.print(f"{said}, {kind['disk']:.0f} in the append-only file", highlight=False)
