"""The ledger of a pool: `segmented pool relay` copies it to the order database, `segmented pool trim` bounds it."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    signals,
    span,
    write_json,
)
from segmented.errors import DatabaseUnavailable, InvalidInput, StoreUnavailable
from segmented.files import STDOUT
from segmented.models import Trimmed
from segmented.models.ids import plural
from segmented.process import tell
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.orders import Gate, RelayReport, ShardRelay

ROUND_SECONDS: Final = 10.0
"""Maximum time of one round of --follow, after which it is reported."""
RELAYED: Final = "relayed"
EVERY_MIN: Final = 0.1
EVERY_MAX: Final = 86_400.0

KeepOption = Annotated[
    int | None,
    typer.Option("--trim-keep", metavar="N", min=0, help="Ledger entries to keep; older relayed ones are deleted."),
]


def relay(
    sku: SkuArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: interval between rounds.")] = 1.0,
    trim_keep: KeepOption = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Copy a pool's ledger to the order database: the changes that it lacks, each once. Safe while the pool sells.

    For gated pools and others. From the first run on, the ledger is trimmed only behind what was copied. Any number of
    runs may overlap, and the next one continues an interrupted one. With --follow and --json -, prints one object per
    line.
    """
    if database is None:
        raise InvalidInput(f"relay needs --database URL: the order database that gets the ledger of {sku!r}")
    if not EVERY_MIN <= every <= EVERY_MAX:
        raise InvalidInput(f"--every {every:g} must be between {EVERY_MIN:g} and {EVERY_MAX:,.0f} s")
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it
    from segmented.orders import relay as relay_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with RedisStore.from_url(url) as store, migrated_gate(database) as gate:
        pool = find_pool(store, sku)
        if not follow:
            _tell(relay_pool(pool, gate, trim_keep=trim_keep), json_file)
            return
        _follow(pool, gate, every=every, trim_keep=trim_keep, json_file=json_file)


def trim(
    sku: SkuArgument,
    *,
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="Ledger entries to keep at least.")],
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Delete old entries of a pool's ledger, after writing a checkpoint of its numbers. Safe to run twice.

    Refused for entries of a relayed ledger that no database has yet. Audit first: of deleted entries only sums remain.
    """
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
        done = [shard.trim_ledger(keep=keep) for shard in shards]
    found = [
        {"shard": number, "first_sequence": one.first_sequence, "sequence": one.sequence}
        for number, one in enumerate(done)
    ]
    if not write_json(json_file, {"sku": sku, "shards": found}):
        for number, one in enumerate(done):
            typer.echo(f"{_place(number, len(done))}{_trimmed(one)}")


def _follow(
    pool: Pool | ShardedPool, gate: Gate, *, every: float, trim_keep: int | None, json_file: Path | None
) -> None:
    """Relay until a signal; report a server that does not answer once, and go on when it does again."""
    from segmented.orders import relay as relay_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

    said = ""
    with signals(signal.SIGINT, signal.SIGTERM) as heard:
        while True:
            try:
                report = relay_pool(pool, gate, timeout=ROUND_SECONDS, trim_keep=trim_keep)
            except (DatabaseUnavailable, StoreUnavailable) as error:
                if said != str(error):
                    said = str(error)
                    tell(said)
            else:
                if report.copied or said != RELAYED:
                    said = RELAYED
                    _tell(report, json_file, is_line=True)
            if heard(every):
                return


def _tell(report: RelayReport, json_file: Path | None, *, is_line: bool = False) -> None:
    if json_file == STDOUT and is_line:
        typer.echo(json.dumps(_as_json(report)))
    elif json_file is not None:
        write_json(json_file, _as_json(report))
    if json_file != STDOUT:
        for one in report.shards:
            typer.echo(f"{_place(one.shard, len(report.shards))}{_relayed(one)}")
    sys.stdout.flush()


def _as_json(report: RelayReport) -> dict[str, Any]:
    sums = {"copied": report.copied, "entries_behind": report.entries_behind, "seconds_behind": report.seconds_behind}
    return {"sku": report.sku} | sums | {"shards": [asdict(one) for one in report.shards]}


def _place(shard: int, count: int) -> str:
    return f"shard {shard}: " if count > 1 else ""


def _relayed(one: ShardRelay) -> str:
    epoch, sequence = one.relayed
    behind = "nothing behind"
    if one.entries_behind:
        many = f"{one.entries_behind} {plural(one.entries_behind, 'entry')}"
        behind = f"{many} and {span(one.seconds_behind)} behind"
    marked = f", {one.marked} marked as lost" if one.marked else ""
    begins = "" if one.first_sequence is None else f"; the ledger begins with {one.first_sequence}"
    changes = f"{one.copied} {plural(one.copied, 'change')}"
    return f"relayed up to {epoch}-{sequence}: {changes} copied{marked}, {behind}{begins}"


def _trimmed(one: Trimmed) -> str:
    return f"the ledger begins with {one.first_sequence}; its last entry is {one.sequence}"
