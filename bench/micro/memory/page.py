"""Renders the measured bytes as a page: a pure function of the saved results, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.micro.memory.measure import SEGMENTS, WARM

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALES: Final = ((1_000, "1 thousand"), (1_000_000, "1 million"), (100_000_000, "100 million"))
SCALED: Final = ("sold", "sold in batches", "gated", "submitted")

INTRODUCTION: Final = """\
# How much memory a sale needs

Every order of a pool keeps a record as long as the pool exists, unless an order database answers for it, so that a
repeat gets the same answer. The ledger keeps an entry for every change. `python -m bench.micro.memory --write`
measures what that costs on a real server and writes this page.
"""

GIVES_BACK: Final = """\
## What gives memory back

- [Trimming the ledger](../how-to/audit-a-pool.md) gives back the part in the ledger, while the pool sells.
- [Archiving a closed pool](../how-to/export-and-drop.md#archive-a-finished-sale) gives back everything but a note of a
  few hundred bytes, which goes after 30 days.
- [Forgetting finished orders](../how-to/export-and-drop.md#drop-finished-orders) gives back their records, while a
  gated pool sells. A step of up to 1,000 orders takes the server less than 10 ms.
- Nothing else removes single records from an open pool, so that a late repeat of any order finds its answer. For a sale
  without end, open a pool for each period, such as a day, and archive the pool of the period before.
- A lock's fencing token goes by itself, a day after it was last used.

Redis keeps freed memory for new keys: the size of its process may stay the same.
"""

CHOOSING: Final = """\
## Choose `maxmemory`

1. Multiply the orders that a pool will have, expired ones included, by the bytes of their kind. Add up the pools that
   exist at the same time.
2. Add half of it, for hash tables that grow, fragmentation, connections and replicas.
3. Leave as much memory free on the machine as the pool changes while the append-only file is rewritten. In a busy sale
   that may be as much again.
4. Set `maxmemory-policy noeviction`. A store refuses pools under another one unless the URL has `allow_eviction=yes`.
   If memory is full, new orders are refused with an error. Confirms, cancels, expiries, trims and archives still work.

The append-only file grows with every command, and by default the server rewrites it when it has doubled. Provide disk
for three times the memory.
"""


def render(results: dict[str, Any]) -> str:
    """Return the page."""
    parts = [INTRODUCTION, "## Bytes of one record\n", "\n".join(_table(results)), _legend(results)]
    parts += ["## Orders in total\n", "\n".join(_scaled(results)), GIVES_BACK, CHOOSING]
    return "\n".join([*parts, "## Conditions\n", _conditions(results)])


def _table(results: dict[str, Any]) -> Iterator[str]:
    heads = (
        "kind",
        "memory",
        "of it in the ledger",
        "append-only file",
        "left after archiving",
        "in the archive (.gz)",
    )
    yield f"| {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for kind in results["kinds"]:
        names = ("memory", "ledger", "disk", "after_archive", "archive_file")
        yield f"| {kind['name']} | {' | '.join(_bytes(kind[name]) for name in names)} |"
    yield ""


def _bytes(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _legend(results: dict[str, Any]) -> str:
    kinds = "\n".join(_described(kind) for kind in results["kinds"])
    return f"All numbers are bytes; the archive is compressed. The kinds:\n\n{kinds}\n"


def _described(kind: dict[str, Any]) -> str:
    return f"- *{kind['name']}*: {kind['summary']}."


def _scaled(results: dict[str, Any]) -> Iterator[str]:
    kinds = {kind["name"]: kind for kind in results["kinds"]}
    yield "| orders | " + " | ".join(f"{name}: memory, ledger trimmed" for name in SCALED) + " |"
    yield "| --- |" + " ---: |" * len(SCALED)
    for orders, name in SCALES:
        cells = (
            f"{_size(kinds[one]['memory'] * orders)}, {_size((kinds[one]['memory'] - kinds[one]['ledger']) * orders)}"
            for one in SCALED
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _size(number: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number:,.0f} B"


def _conditions(results: dict[str, Any]) -> str:
    found = results["conditions"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"{results['orders']:,} orders of each kind, fewer of granted ones and carts, after {WARM:,} to begin with.\n"
        f"Order ids have 14 characters, orders one unit, pools {SEGMENTS} segments. {versions};\n"
        f"commit {found['commit'] or 'unknown'}.\n"
    )
