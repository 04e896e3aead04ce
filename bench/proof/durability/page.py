"""Renders the loss table as a page: a pure function of the saved results, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.proof.durability.cells import CELLS, FAULTS, PROFILES
from bench.proof.durability.results import LABELS, row_of
from bench.proof.durability.trial import STOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN: Final = "<!-- shown: bench/proof/durability/results.json -->"

INTRODUCTION: Final = """\
# Losses by fault

Redis and Valkey acknowledge writes that a crash, a power failure or a failover can take back. This page shows how many
acknowledged orders that costs, for each set-up of the stock's server and each fault, and when a process notices it.
`segmented torture durability` injects the faults into real servers and writes this page from what it counted.

In short:

- Without a replica, `appendfsync always` loses nothing but what an operator takes back with an old copy.
- Without an order database, every other set-up can forget acknowledged orders, also behind Sentinels and in a cluster.
  A process that has seen them notices it, with [the exceptions below](#limits-of-the-table), and [the pool is
  frozen](../how-to/recover-a-pool.md). Then no unit is sold twice, provided that you know how many orders your
  customers have.
- The death of a client or of a worker loses nothing anywhere.
- With an [order database](durable-gate.md), the server may forget what it likes: no acknowledged order is lost, and no
  unit is sold twice.
"""

METHOD: Final = """\
## How it is counted

A trial is one sale on servers of its own. Two processes with two threads each buy single units, and note every
acknowledged order in a journal, a file outside of the stock's server. At a random moment of the sale comes the fault.
A replica is cut off, and a copy of the data is made, a random while before. Then the address leads to a server again,
and the buyers go on. When one of them learns that the pool lost changes, an operator counts the journal and does what
[recover a pool](../how-to/recover-a-pool.md) says. Then the rest is sold.
<!-- set: bench/proof/durability/buyers.py::PROCESSES, bench/proof/durability/buyer.py::THREADS -->

- *acknowledged before the fault*: orders that were in the journal when a server answered again.
- *forgotten by the server*: of these, the ones that its ledger did not have as confirmed at that moment.
- *acknowledged orders lost*: orders of the journal that no store has any more. Without an order database these are the
  forgotten ones: only the customer and your own records know of them.
- *units sold twice*: units of different orders, in the journal or in the order database, beyond the stock.
- *noticed after*: seconds from the fault until a buying process gets `PoolFrozen` or `PoolVanished`, in trials in
  which the server forgot something: median, maximum.
- *sells again after*: seconds from the fault until an order is acknowledged again: median, maximum. That includes the
  start of a server, or the promotion. A script does it at once here, Sentinels and clusters when they have noticed the
  death. A person or a slow disk adds to it.

Sentinels notice a death after 1 s here, and cluster nodes after 1.5 s, so that a trial takes some seconds; the defaults
are 30 s and 15 s. A replica that was without its master for long is not promoted by default. The cluster of the table
promotes it (`cluster-replica-validity-factor 0`), and the Sentinels' limit of ten times their second is not reached.
While there is no quorum, calls fail with `StoreUnavailable` after their own timeout and the store's `patience` of 5 s;
buyers repeat them. A call that fails later than 20 s breaks the run.
<!-- set: bench/proof/durability/watched.py::DOWN_AFTER_MS, bench/proof/durability/watched.py::NODE_TIMEOUT_MS -->
<!-- set: bench/proof/durability/judge.py::FAILED_SECONDS_MAX -->

In worker-kill, buyers submit orders and wait for their outcome, and two workers take what is due from the outbox and
finish it in envelopes. An order that the other one does not finish within 6 s breaks the run.
<!-- set: bench/proof/durability/buyers.py::WORKERS, bench/proof/durability/buyer.py::KNOWN_SECONDS -->

The judge reads journals and order rows. It shares no code with the pool, and its own tests feed it journals that were
doctored.
<!-- shown: tests/quick/bench/test_durability_judge.py::test_a_forgotten_order_that_no_process_noticed_is_found -->
"""

RESERVATIONS: Final = """\
## Limits of the table

- The workers of the table are processes that call `take_envelope`. [Torture the orders](../how-to/torture-orders.md)
  kills Celery workers, up to a thousand times a run.
- The processes that saw the lost changes go on in every trial. Where all of them are gone, too, a pool without an order
  database sells on from what is left, and nobody notices: see
  [what is not noticed](../how-to/recover-a-pool.md#what-is-not-noticed).
- A loss is noticed by a process that has seen a change that was lost. If very few changes are lost, other processes
  may make as many new ones first. It is noticed all the same: the pool knows with which change each server began.
- Each fault hits the server that has the pool, or its replica. A pool of several shards in a cluster loses what one of
  its shards loses: the others sell on.
- Where there is no replica, power-loss is what both-power-loss is elsewhere. If a replica is left, the loss of the
  server's power is server-kill: the replica is promoted.
- An old copy behind Sentinels or in a cluster is not in the table: nobody is promoted, and it is as for `replicated`.
- A power failure is emulated: the process is killed, and its files are cut at the last byte that it had synced, which a
  preloaded library has noted. A disk that says it has synced and has not is worse.
- A replica that was only stalled finds the missed sales in its socket when it goes on, as far as they fit, and loses
  few or none. In replica-behind its link is cut instead.
- Set-ups are servers, not [profiles](../how-to/choose-a-profile.md), except those whose names begin with `profile`:
  their pool is opened with a profile, and their operator starts the old server as a replica of the new one.
"""


def render(results: dict[str, Any]) -> str:
    """Return the page."""
    parts = [INTRODUCTION, "## The table\n", "\n".join(_table(results)), _verdict(results)]
    parts += ["## Set-ups and faults\n", "\n".join(_legend()), METHOD, RESERVATIONS]
    parts += ["## Conditions\n", _conditions(results["conditions"])]
    return "\n".join(parts)


def _table(results: dict[str, Any]) -> Iterator[str]:
    yield "| set-up | fault | " + " | ".join(LABELS) + " |"
    yield "| --- | --- |" + " ---: |" * len(LABELS)
    for cell in results["cells"]:
        row = [f"skipped: {cell['skipped']}", *row_of(cell)[1:]] if cell["skipped"] else row_of(cell)
        yield f"| `{cell['profile']}` | {cell['fault']} | " + " | ".join(row) + " |"
    yield f"{SHOWN}\n"
    found = {f"{cell['profile']}/{cell['fault']}" for cell in results["cells"]}
    missing = [cell.name for cell in CELLS if cell.name not in found]
    if missing:
        yield f"{len(missing)} cells were not run for this table: those of {', '.join(_set_ups(missing))}.\n{SHOWN}\n"


def _set_ups(cells: list[str]) -> Iterator[str]:
    """Yield each set-up of some cells once, and its faults unless all of them are among the cells."""
    for profile in PROFILES:
        faults = [name.partition("/")[2] for name in cells if name.startswith(f"{profile.name}/")]
        if faults and len(faults) == sum(fault.fits(profile) for fault in FAULTS):
            yield f"`{profile.name}`"
        elif faults:
            yield f"`{profile.name}` with {' and '.join(faults)}"


def _verdict(results: dict[str, Any]) -> str:
    broken: list[str] = results["broken"]
    if broken:
        found = "".join(f"- {sentence}.\n" for sentence in broken)
        return f"These guarantees did not hold:\n\n{found}{SHOWN}\n"
    return (
        "In every trial in which the server forgot acknowledged orders, a process noticed it. With an order database\n"
        f"no trial lost an order or sold a unit twice.\n{SHOWN}\n"
    )


def _legend() -> Iterator[str]:
    yield "| set-up | what it is |\n| --- | --- |"
    for profile in PROFILES:
        yield f"| `{profile.name}` | {profile.summary} |"
    yield "\n| fault | what happens |\n| --- | --- |"
    for fault in FAULTS:
        yield f"| {fault.name} | {fault.summary} |"
    yield "<!-- set: bench/proof/durability/deployment.py::BEHIND_SECONDS -->\n"


def _conditions(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    options = found["options"]
    return (
        f"{options['trials']} trials a cell, seed {options['seed']}, a stock of {STOCK:,} units each; {found['cores']} "
        f"cores for everything\n({found['cpu_model']}), load {found['load_before']:g} at the beginning; {versions}; "
        f"commit {found['commit'] or 'unknown'}.\n{SHOWN}\n"
    )
