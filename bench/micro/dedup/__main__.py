"""`python -m bench.micro.dedup --keys 10000000`: the benchmark `dedup` with another number of live keys."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.display import display_on
from bench.micro.dedup.context import Sizes
from bench.micro.dedup.measure import measure_dedup
from bench.results import check_writable, write
from segmented.cli.console import console_beside

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--keys", type=int, default=1_000_000, help="live keys in the fuller database")
parser.add_argument("--json", type=Path, help="write the results to this file; - is standard output")
parser.add_argument("--url", help="server to use, which must be empty")
options = parser.parse_args()
check_writable(options.json)
console = console_beside(options.json)
results = measure_dedup(options.url, display_on(console), Sizes(live_keys=(10_000, max(20_000, options.keys))))
results.show(console)
write(results, options.json)
