"""`python -m bench.source_map CHARTS`: writes source-lock.svg and source-order.svg, and prints the counts.

The calls that are drawn run on a Valkey server and an SQLite file of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.source_map.picture import count, picture
from bench.source_map.trace import recorded
from segmented.errors import SegmentedError
from segmented.locks import Lock
from segmented.orders import Gate, connect, take_envelope
from segmented.protocol.wire import Dialect
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Outbox, Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from bench.source_map.trace import Trace

HEADS: Final = {
    "lock": "A lock, from acquire to the script",
    "order": "An order, from reserve or submit to SQL",
}
MOVES_MAX: Final = 30
"""The goal for the calls of HAVE_A_GOAL."""
HAVE_A_GOAL: Final = frozenset({"Lock.acquire", "Pool.grant"})
STOCK: Final = 1_000
SEGMENTS: Final = 4
ROUNDS: Final = ("warm-up", "again", "recorded")
"""The first rounds connect, load scripts, fill caches and import what is imported late; the last one counts."""


def drawn(found: dict[str, list[Trace]]) -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {f"source-{name}.svg": picture(HEADS[name], traced) for name, traced in found.items()}


def counts(found: dict[str, list[Trace]]) -> list[str]:
    """Return a line for each call."""
    goals = dict.fromkeys(HAVE_A_GOAL, f" (goal: at most {MOVES_MAX})")
    return [f"{one.title}: {count(one)}{goals.get(one.title, '')}" for traced in found.values() for one in traced]


def main(charts: Path) -> None:
    """Write the pictures, and print the counts."""
    found = traces()
    for name, text in drawn(found).items():
        (charts / name).write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join([*counts(found), ""]))


def traces() -> dict[str, list[Trace]]:
    """Run everything; returns the traces of each picture by its name. Raises InvalidInput where no server can start."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(ValkeyServer.start())
        # Every server supports this dialect, and it has a script for each operation.
        store = stack.enter_context(RedisStore.from_url(server.url, dialect=Dialect.SCRIPT))
        engine = connect(f"sqlite:///{folder / 'orders.db'}")
        gate = stack.enter_context(Gate(engine))
        gate.create()
        plain, gated = Pool(store, "plain"), Pool(store, "gated", outbox=Outbox())
        plain.open(stock=STOCK, segments=SEGMENTS)
        gated.open(stock=STOCK, segments=SEGMENTS, gated=True)
        gate.open("gated", [STOCK // SEGMENTS] * SEGMENTS)
        found: dict[str, list[Trace]] = {}
        for name in ROUNDS:
            found = {"lock": _lock(store), "order": _order(plain, gated, gate, engine, name)}
        return found


def _lock(store: RedisStore) -> list[Trace]:
    lock = Lock(store, "lock")
    with recorded("Lock.acquire") as acquire:
        lease = lock.acquire()
    with recorded("Lease.release") as release:
        lease.release()
    return [acquire, release]


def _order(plain: Pool, gated: Pool, gate: Gate, engine: Engine, name: str) -> list[Trace]:
    with recorded("Pool.reserve") as reserve:
        plain.reserve(f"{name}-1")
    with recorded("Pool.grant") as grant:
        granted = plain.grant(f"{name}-2")
    if not isinstance(granted, Grant):
        message = f"the order was refused: {granted.describe()}"
        raise SegmentedError(message)
    with recorded("Grant.confirm") as finish:
        granted.confirm()
    with recorded("Pool.submit") as submit:
        gated.submit(f"{name}-3")
    with recorded("take_envelope with a gate", engine) as take:
        report = take_envelope(gated, [f"{name}-3"], gate=gate)
    if len(report.settled) != 1:
        message = f"the envelope settled nothing: {report.counts()}"
        raise SegmentedError(message)
    return [reserve, grant, finish, submit, take]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.source_map", description="Draw two calls, and count them.")
    parser.add_argument("charts", metavar="CHARTS", type=Path, help="folder of source-lock.svg and source-order.svg")
    main(parser.parse_args().charts)
