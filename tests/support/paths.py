"""Where the checkout's files are."""

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent
CDNOW: Final = TESTS / "data" / "cdnow_orders.csv.gz"
"""A real file of orders."""
