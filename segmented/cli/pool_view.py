"""A pool's state as rows and as JSON, of one piece or in shards; `segmented pool list`, `doctor`, and `--all`.

Rows combine many segments into ranges; JSON has each one. `--all` runs a command on one pool after the other.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from segmented import protocol as op
from segmented.cli.output import DEFAULT_URL, JsonOption, Row, UrlOption, print_table, shown, span, write_json
from segmented.errors import InvalidInput, PoolInShards, PoolMissing, SegmentedError, ShardVanished
from segmented.files import STDOUT
from segmented.models import LedgerEntry, PoolState, Restocked, ShardedState
from segmented.models.ids import SKU_BYTES_MAX, checked_id, plain_text, plural
from segmented.models.shards import units_away
from segmented.plans import run_sync
from segmented.process import tell
from segmented.stock import Pool, Repair, RepairReport, ShardedAuditReport, ShardedPool, find_pool
from segmented.stock.sharded.audit import ShardedRepairReport
from segmented.stores.redis import RedisStore
from segmented.watch.reading import diagnose, reading_plan

if TYPE_CHECKING:
    from segmented.orders import Gate

ROWS_MAX: Final = 24
"""Maximum number of segment rows; more segments are combined into ranges."""

EXIT_WRONG: Final = 1
SEGMENT_HEADS: Final = ("segment", "units")
FOLDED_HEADS: Final = ("segments", "units", "least", "most", "empty")
SHARD_HEADS: Final = ("shard", "segments", "available", "reserved", "confirmed", "on the way")
BETWEEN: Final = "between"
"""The place of drift that does not belong to a single shard."""


def total_rows(state: PoolState) -> list[Row]:
    """Return the totals, one per row."""
    rows: list[Row] = [
        ("sku", shown(state.sku)),
        ("state", state.condition),
        ("stocked", str(state.stocked)),
        ("available", str(state.available)),
        ("reserved", str(state.reserved)),
        ("confirmed", str(state.confirmed)),
        ("orders", str(state.order_count)),
        ("segments", str(state.segment_count)),
        ("limit per customer", "none" if state.limit_per_customer is None else str(state.limit_per_customer)),
        ("decided by", "an order database" if state.gated else "the pool"),
        ("profile", shown(state.profile)),
        ("epoch", str(state.epoch)),
        ("last change", str(state.sequence)),
    ]
    if isinstance(state, ShardedState):
        rows[-1] = ("changes", str(state.sequence))
        rows.insert(7, ("shards", str(len(state.shards))))
        rows.insert(4, ("on the way", str(state.away)))
    named = (("queue of its workers", state.queue), ("step of its workers", state.step))
    rows += [(what, shown(name)) for what, name in named if name is not None]
    rows += relayed_rows(state)
    if state.forgotten:
        rows.append(("forgotten orders", str(state.forgotten)))
    moved = [("restocked", state.restocked), ("withdrawn", state.withdrawn)]
    rows[3:3] = [(word, str(units)) for word, units in moved if units]
    return rows


def relayed_rows(state: PoolState) -> list[Row]:
    """Return up to which change a database has the ledger, and its lag; nothing for a pool that is not relayed."""
    shards = state.shards if isinstance(state, ShardedState) else (state,)
    rows: list[Row] = []
    for number, shard in enumerate(shards):
        if shard.relayed is not None:
            behind = max(0, shard.sequence - shard.relayed[1])
            lag = f"{behind} behind, {span(shard.relay_age_ms / 1_000)}" if behind else "nothing behind"
            place = f" of shard {number}" if len(shards) > 1 else ""
            rows.append((f"relayed{place}", f"{shard.relayed[0]}-{shard.relayed[1]}, {lag}"))
    return rows


def segment_rows(
    stock: tuple[int, ...], *, rows_max: int = ROWS_MAX, is_folded: bool | None = None
) -> tuple[Row, list[Row]]:
    """Return heads and rows: a row for each segment, or for each range of them if there are more than `rows_max`."""
    if not (len(stock) > rows_max if is_folded is None else is_folded):
        return SEGMENT_HEADS, [(str(segment), str(units)) for segment, units in enumerate(stock)]
    size = -(-len(stock) // rows_max)
    ranges = [(first, stock[first : first + size]) for first in range(0, len(stock), size)]
    return FOLDED_HEADS, [
        (f"{first}-{first + len(part) - 1}", str(sum(part)), str(min(part)), str(max(part)), str(part.count(0)))
        for first, part in ranges
    ]


def as_json(state: PoolState) -> dict[str, Any]:
    """Return all numbers, including each segment's."""
    found = asdict(state) | {name: getattr(state, name) for name in ("condition", "stocked", "is_sold_out")}
    return found | _shards_json(state) if isinstance(state, ShardedState) else found


def show_once(state: PoolState, json_file: Path | None) -> None:
    """Print the state, or write it to a file."""
    if not write_json(json_file, as_json(state)):
        _print_state(state)
    if state.unreadable:
        typer.echo(unreadable(state), err=True)
        raise typer.Exit(EXIT_WRONG)


def unreadable(state: PoolState) -> str:
    """Return a sentence that names the numbers overwritten with non-integers, or nothing."""
    if not state.unreadable:
        return ""
    names = ", ".join(shown(name) for name in state.unreadable)
    return f"not whole numbers, so counted as 0: {names}; see segmented pool audit {shown(state.sku)}"


def _print_state(state: PoolState) -> None:
    for number, (heads, rows) in enumerate(_blocks(state)):
        if number:
            typer.echo()
        print_table(heads, rows)


def _blocks(state: PoolState) -> list[tuple[Row, list[Row]]]:
    totals: tuple[Row, list[Row]] = ("", ""), total_rows(state)
    if not isinstance(state, ShardedState):
        return [totals, segment_rows(state.stock)]
    is_folded = state.segment_count > ROWS_MAX
    rows_max = max(1, ROWS_MAX // len(state.shards))
    parts = [segment_rows(shard.stock, rows_max=rows_max, is_folded=is_folded) for shard in state.shards]
    rows = [(str(number), *row) for number, (_, own) in enumerate(parts) for row in own]
    return [totals, (SHARD_HEADS, shard_rows(state)), (("shard", *parts[0][0]), rows)]


ChangeT = TypeVar("ChangeT")
Placed = tuple[int | None, Repair]
"""The number of a shard, None for a repair between shards or of a pool in one piece; and the repair."""


@contextmanager
def gate_of(
    pool: Pool | ShardedPool, database: str | None, *, is_said: bool, needed: str = ""
) -> Iterator[Gate | None]:
    """Connect to the order database of a gated pool; None for a pool without one, or if `database` is not given.

    Raises InvalidInput if the database cannot be used, if it is said for a pool that has none, and, with what is
    `needed`, if a gated pool is given none.
    """
    is_gated = (pool.shards[0] if isinstance(pool, ShardedPool) else pool).is_gated()
    if is_said and not is_gated:
        what = "in shards" if isinstance(pool, ShardedPool) else "not gated"
        raise InvalidInput(f"pool {pool.sku!r} is {what}: it has no order database, so leave --database out")
    if needed and is_gated and database is None:
        raise InvalidInput(f"pool {pool.sku!r} is gated: {needed}")
    if database is None or not is_gated:
        yield None
        return
    from segmented.cli.pool_gate import order_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with order_gate(database) as gate:
        yield gate


def required_in_one_piece(store: RedisStore, sku: str) -> None:
    """Raise PoolInShards if the pool is sharded."""
    if isinstance(find_pool(store, sku), ShardedPool):
        raise PoolInShards(sku)


def shard_rows(state: ShardedState) -> list[Row]:
    """Return one row per shard: its units, and the units that left it and have not arrived."""
    rows = []
    away_by_shard = units_away(state.shards, state.shards)
    for number, (shard, away) in enumerate(zip(state.shards, away_by_shard, strict=True)):
        counts = (shard.segment_count, shard.available, shard.reserved, shard.confirmed, away)
        rows.append((str(number), *map(str, counts)))
    return rows


def _shards_json(state: ShardedState) -> dict[str, Any]:
    away_by_shard = units_away(state.shards, state.shards)
    return {
        "away": state.away,
        "shards": [
            {"shard": number} | asdict(shard) | {"sku": state.sku, "stocked": shard.stocked, "away": away}
            for number, (shard, away) in enumerate(zip(state.shards, away_by_shard, strict=True))
        ],
    }


def in_all(pool: object, answer: ChangeT) -> ChangeT | Restocked:
    """Return the answer with the free units of all shards, not just of the changed one."""
    if isinstance(pool, ShardedPool) and isinstance(answer, Restocked):
        with suppress(SegmentedError):  # the units are added or removed even if a shard cannot be read
            return replace(answer, available=pool.state().available)
    return answer


def ledgers(
    pool: Pool | ShardedPool, shard: int | None, after: int
) -> tuple[bool, Iterator[tuple[int | None, LedgerEntry]]]:
    """Return whether the pool is in shards, and its changes, each with the number of its shard.

    Raises InvalidInput for a shard that does not exist, and for a ledger position without its shard.
    """
    if isinstance(pool, Pool):
        if shard is not None:
            raise InvalidInput(f"pool {pool.sku!r} is not in shards, so --shard {shard} cannot be given")
        return False, ((None, entry) for entry in pool.read_ledger(after=after))
    shards = pool.shards
    if shard is None and after:
        message = f"each shard of {pool.sku!r} counts its own changes: name one by --shard with --after {after}"
        raise InvalidInput(message)
    if shard is not None and not 0 <= shard < len(shards):
        message = f"--shard {shard} must be between 0 and {len(shards) - 1}: {pool.sku!r} has {len(shards)} shards"
        raise InvalidInput(message)
    numbers = range(len(shards)) if shard is None else [shard]
    return True, ((number, entry) for number in numbers for entry in shards[number].read_ledger(after=after))


def drift_lines(report: ShardedAuditReport) -> Iterator[str]:
    """Yield each drift as a line that begins with its shard."""
    for number, own in enumerate(report.shards):
        yield from (f"shard {number}: {one}" for one in own.drift)
        if own.drift_count > len(own.drift):
            yield f"shard {number}: and {own.drift_count - len(own.drift)} more"
    yield from (f"{BETWEEN} shards: {one}" for one in report.transfers)


def placed(report: RepairReport | ShardedRepairReport) -> list[Placed]:
    """Return the repairs, each with the number of its shard."""
    if isinstance(report, RepairReport):
        return [(None, each) for each in report.repairs]
    own = ((number, each) for number, repairs in enumerate(report.shards) for each in repairs)
    return [*own, *((None, each) for each in report.between)]


def place(number: int | None) -> str:
    """Return the name of a repair's shard."""
    return BETWEEN if number is None else str(number)


def away_line(units: int) -> Iterable[str]:
    """Return a line about units in transit, if there are any."""
    return [f"{units} {plural(units, 'unit')} on the way between shards"] if units else []


AllOption = Annotated[bool, typer.Option("--all", help="Every pool, one after the other, instead of one.")]
OneSkuArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SKU]", help="Stock keeping unit: name of the pool.", callback=lambda sku: sku and plain_text(sku)
    ),
]


def one_of(sku: str | None, *, all_pools: bool) -> str:
    """Return the sku, "" for all pools. Raises InvalidInput unless exactly one of both was given."""
    if (sku is None) != all_pools:
        raise InvalidInput("name one pool, or give --all for every pool")
    return sku or ""


def pools_of(url: str) -> list[str]:
    """List the pools that were opened on a server."""
    with RedisStore.from_url(url) as store:
        return list(store.execute(op.ListPools()))


def gated_pools_of(url: str) -> Iterator[tuple[str, int | None]]:
    """List the gated pools of a server, each shard with its number."""
    for sku in pools_of(url):
        with RedisStore.from_url(url) as store:
            found = find_pool(store, sku)
            shards = found.shards if isinstance(found, ShardedPool) else (found,)
            is_gated = False
            with suppress(PoolMissing, ShardVanished):
                is_gated = shards[0].state().gated
        if is_gated:
            yield from ((sku, number if isinstance(found, ShardedPool) else None) for number in range(len(shards)))


def each_shard(url: str, run: Callable[[str, int | None], None], json_file: Path | None) -> None:
    """Run a command for each gated pool of a server, and each shard of one."""
    found = {sku if shard is None else f"{sku} shard {shard}": (sku, shard) for sku, shard in gated_pools_of(url)}
    each_pool(found, lambda name: run(*found[name]), json_file)


def each_pool(skus: Iterable[str], run: Callable[[str], None], json_file: Path | None) -> None:
    """Run a command for each pool, and go on after a failure. Exit code 1 if one failed."""
    done: list[dict[str, Any]] = []
    for sku in skus:
        exit_code, error = 0, None
        if json_file != STDOUT:
            typer.echo(f"== {shown(sku)}")
        try:
            with redirect_stdout(io.StringIO()) if json_file == STDOUT else nullcontext():
                run(sku)
        except typer.Exit as ended:
            exit_code = ended.exit_code
        except SegmentedError as failed:
            exit_code, error = EXIT_WRONG, str(failed)
            tell(error)
        done.append({"sku": sku, "exit_code": exit_code, "error": error})
    write_json(json_file, {"pools": done})
    if not done:
        tell("there is no pool for this command")
    if any(one["exit_code"] for one in done):
        raise typer.Exit(EXIT_WRONG)


def list_pools(*, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """List the pools that were opened on a server, by sku, with their units and their state."""
    with RedisStore.from_url(url) as store:
        found = {sku: _state(store, sku) for sku in store.execute(op.ListPools())}
    if not write_json(json_file, {"pools": [_as_json(sku, state) for sku, state in found.items()]}):
        if not found:
            tell("no pool was opened on this server")
        heads = ("sku", "available", "reserved", "confirmed", "state")
        print_table(heads, [_row(sku, state) for sku, state in found.items()])


def _state(store: RedisStore, sku: str) -> PoolState | str:
    try:
        return find_pool(store, sku).state()
    except SegmentedError as error:
        return type(error).__name__


def _row(sku: str, state: PoolState | str) -> tuple[str, ...]:
    if isinstance(state, str):
        return (shown(sku), "-", "-", "-", state)
    condition = f"{state.condition}, gated" if state.gated else state.condition
    return (shown(sku), str(state.available), str(state.reserved), str(state.confirmed), condition)


def _as_json(sku: str, state: PoolState | str) -> dict[str, Any]:
    if isinstance(state, str):
        return {"sku": sku, "state": None, "error": state}
    return {"sku": sku, "state": {name: value for name, value in asdict(state).items() if name != "shards"}}


def doctor(
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Say what keeps a pool from selling, most urgent first, and the command to run next. Changes nothing.

    Exit code 1 if something is wrong; being closed or sold out is not. One short reading: `audit` compares every order.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        each_pool(pools_of(url), lambda one: doctor(one, url=url), json_file)
        return
    sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
    with RedisStore.from_url(url) as store:
        reading = run_sync(reading_plan(sku), store)
    findings = diagnose(reading)
    if not write_json(json_file, {"sku": sku, "findings": [asdict(one) for one in findings]}):
        if findings:
            print_table(("found", "next"), [(shown(one.problem), one.command) for one in findings])
        elif reading.state is not None:
            free = f"{reading.state.available:,} of {reading.state.stocked:,} units free"
            typer.echo(f"nothing is wrong: {free}, {sum(reading.held)} of {len(reading.held)} segments held")
    if any(one.is_fault for one in findings):
        raise typer.Exit(EXIT_WRONG)
