"""`python -m bench.micro.stock --orders 10000000`: the benchmark `stock` with another number of orders."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.display import display_on
from bench.micro.stock.context import Sizes
from bench.micro.stock.measure import measure_stock
from bench.results import check_writable, write
from segmented.cli.console import console_beside

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--orders", type=int, default=1_000_000, help="orders in the fullest pool")
parser.add_argument("--steps", action="store_true", help="measure only the server CPU of each script")
parser.add_argument("--json", type=Path, help="write the results to this file; - is standard output")
parser.add_argument("--url", help="server to use, which nothing else may use")
options = parser.parse_args()
check_writable(options.json)
console = console_beside(options.json)
sizes = Sizes(order_counts=(10_000, max(20_000, options.orders)))
results = measure_stock(options.url, display_on(console), sizes, only_steps=options.steps)
results.show(console)
write(results, options.json)
